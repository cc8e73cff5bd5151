//! Loops that run faster with wider instructions, where the processor has them.
//!
//! Each is written once in plain Rust and compiled a second time with AVX2 on; the compiler
//! vectorises both.

/// Defines a function that runs as compiled for AVX2 where the processor has that.
macro_rules! widened {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $of:ty),*) -> $result:ty $body:block) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($argument: $of),*) -> $result {
            #[inline(always)]
            fn plain($($argument: $of),*) -> $result $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                unsafe fn wide($($argument: $of),*) -> $result {
                    plain($($argument),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has the one feature that `wide` is compiled for.
                    return unsafe { wide($($argument),*) };
                }
            }
            plain($($argument),*)
        }
    };
}

widened! {
    /// The sum of the bytes as 32-bit words of the machine's order, the last one filled up with
    /// zeros. Of less than 16 GiB, so that no carry is lost.
    sum(bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.split_at(bytes.len() & !3);
        let whole: u64 = words
            .chunks_exact(4)
            .map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .sum();
        whole + last(rest)
    }
}

widened! {
    /// Copies `from` to `to`, which are equally long, and gives the same sum.
    copy_and_sum(to: &mut [u8], from: &[u8]) -> u64 {
        let (words, rest) = from.split_at(from.len() & !3);
        let (places, place) = to.split_at_mut(words.len());
        let mut whole = 0;
        for (place, word) in places.chunks_exact_mut(4).zip(words.chunks_exact(4)) {
            place.copy_from_slice(word);
            whole += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        place.copy_from_slice(rest);
        whole + last(rest)
    }
}

#[inline]
fn last(bytes: &[u8]) -> u64 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from(u32::from_ne_bytes(word))
}
