//! Requests of the WireGuard UAPI: the same whether they come at once or in pieces.
//!
//! Input: a byte that is the length of a piece, then the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_proto::uapi::{Parser, Request, Step, UapiError};

fuzz_target!(|input: &[u8]| {
    let Some((&size, stream)) = input.split_first() else {
        return;
    };
    let whole = requests(std::iter::once(stream));
    let pieces = requests(stream.chunks(usize::from(size).max(1)));
    assert_eq!(whole, pieces);
});

fn requests<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Result<Request, UapiError>> {
    let mut parser = Parser::new();
    let mut found = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            match parser.push(piece) {
                Step::More => break,
                Step::Complete { consumed, request } => {
                    assert!(0 < consumed && consumed <= piece.len());
                    piece = &piece[consumed..];
                    let ends = request.as_ref().is_err_and(|error| error.fatal);
                    found.push(request);
                    if ends {
                        return found;
                    }
                }
            }
        }
    }
    found
}
