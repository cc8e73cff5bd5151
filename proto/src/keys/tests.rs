//! Keys against what `wg` says, and against themselves.

use super::*;
use proptest::prelude::*;

const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const PUBLIC: &str = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";

#[test]
fn a_private_key_has_the_public_key_that_wg_says() {
    // echo $PRIVATE | wg pubkey
    let key: PrivateKey = PRIVATE.parse().unwrap();
    assert_eq!(key.to_base64().as_str(), PRIVATE);
    assert_eq!(PublicKey::from(&key).to_string(), PUBLIC);
}

#[test]
fn base64_is_strict() {
    let good = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    assert!(PublicKey::from_base64(good).is_ok());
    for (bad, error) in [
        ("", KeyError::Base64Length(0)),
        (&good[..43], KeyError::Base64Length(43)),
        (
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
            KeyError::Base64Length(45),
        ),
        // Stray bits, no padding, too much of it, other alphabets.
        (
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB=",
            KeyError::Base64,
        ),
        (
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            KeyError::Base64,
        ),
        (
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==",
            KeyError::Base64,
        ),
        (
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-=",
            KeyError::Base64,
        ),
        (
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAé",
            KeyError::Base64Length(44),
        ),
    ] {
        match PublicKey::from_base64(bad) {
            Err(found) => assert!(found == error || bad.contains('é'), "{bad:?}: {found:?}"),
            Ok(_) => panic!("{bad:?} is no key"),
        }
    }
}

#[test]
fn hex_is_64_digits_of_either_case() {
    let text = "00ff".repeat(16);
    let key = PublicKey::from_hex(&text).unwrap();
    assert_eq!(key.to_hex(), text);
    assert_eq!(PublicKey::from_hex(&text.to_uppercase()).unwrap(), key);
    assert_eq!(
        PublicKey::from_hex(&text[1..]).unwrap_err(),
        KeyError::HexLength(63)
    );
    assert_eq!(
        PublicKey::from_hex(&text.replace('0', "g")).unwrap_err(),
        KeyError::Hex
    );
    assert_eq!(
        PublicKey::from_hex(&text.replace("00", "+1")).unwrap_err(),
        KeyError::Hex
    );
}

#[test]
fn secrets_are_not_shown() {
    let private: PrivateKey = PRIVATE.parse().unwrap();
    assert_eq!(format!("{private:?}"), "PrivateKey(redacted)");
    assert_eq!(
        format!("{:?}", PresharedKey::default()),
        "PresharedKey(redacted)"
    );
    for error in [KeyError::Base64, KeyError::Hex, KeyError::Base64Length(3)] {
        assert!(!error.to_string().contains(PRIVATE));
    }
}

#[test]
fn generated_keys_are_clamped_and_differ() {
    let (a, b) = (
        PrivateKey::generate().unwrap(),
        PrivateKey::generate().unwrap(),
    );
    assert_ne!(a, b);
    assert_eq!(a.as_bytes()[0] & 7, 0);
    assert_eq!(a.as_bytes()[31] & 0xc0, 0x40);
    assert!(PresharedKey::default().is_zero());
    assert!(!PresharedKey::generate().unwrap().is_zero());
}

#[test]
fn serde_has_text_for_people_and_bytes_for_machines() {
    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct Keys {
        private: PrivateKey,
        public: PublicKey,
        preshared: PresharedKey,
    }
    let private: PrivateKey = PRIVATE.parse().unwrap();
    let public = private.public();
    let keys = Keys {
        private,
        public,
        preshared: PresharedKey::from_bytes([9; 32]),
    };
    let text = toml::to_string(&keys).unwrap();
    assert!(text.contains(PRIVATE) && text.contains(PUBLIC));
    assert_eq!(toml::from_str::<Keys>(&text).unwrap(), keys);
    assert!(toml::from_str::<Keys>(&text.replace(PUBLIC, "short")).is_err());
    let settings = bincode::config::standard();
    let bytes = bincode::serde::encode_to_vec(&keys, settings).unwrap();
    assert_eq!(bytes.len(), 96);
    let (read, _) = bincode::serde::decode_from_slice::<Keys, _>(&bytes, settings).unwrap();
    assert_eq!(read, keys);
}

proptest! {
    #[test]
    fn every_key_survives_its_text(bytes: [u8; 32]) {
        let key = PublicKey::from_bytes(bytes);
        prop_assert_eq!(PublicKey::from_base64(&key.to_base64()).unwrap(), key);
        prop_assert_eq!(PublicKey::from_hex(&key.to_hex()).unwrap(), key);
        let key = PresharedKey::from_bytes(bytes);
        prop_assert_eq!(PresharedKey::from_base64(&key.to_base64()).unwrap(), key.clone());
        prop_assert_eq!(PresharedKey::from_hex(&key.to_hex()).unwrap(), key);
    }

    #[test]
    fn no_text_panics(text in ".{0,70}") {
        let _ = PublicKey::from_base64(&text);
        let _ = PrivateKey::from_hex(&text);
    }

    #[test]
    fn text_that_is_read_is_the_text_that_is_written(text in "[A-Za-z0-9+/]{43}=") {
        if let Ok(key) = PublicKey::from_base64(&text) {
            prop_assert_eq!(key.to_base64(), text);
        }
    }
}
