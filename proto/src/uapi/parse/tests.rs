use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const KEY: &str = "e84b5a6d2717c1003a13b431570353dbaca9146cf150c5f8575680feba52027a";
const OTHER: &str = "58402e695ba1772b1cc9309755f043251ea77fdcf10fbe63989ceb7e19321376";
const ZERO: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn parse(text: &str) -> Result<Request, UapiError> {
    match Parser::new().push(text.as_bytes()) {
        Step::Complete { consumed, request } => {
            assert!(consumed <= text.len());
            request
        }
        Step::More => panic!("the request goes on: {text:?}"),
    }
}

fn items(lines: &str) -> Vec<SetItem> {
    match parse(&format!("set=1\n{lines}\n")) {
        Ok(Request::Set(items)) => items,
        other => panic!("{lines:?}: {other:?}"),
    }
}

fn refused(lines: &str) -> UapiError {
    parse(&format!("set=1\n{lines}\n")).unwrap_err()
}

fn only_peer(lines: &str) -> PeerChange {
    match items(&format!("public_key={KEY}\n{lines}")).as_slice() {
        [SetItem::Peer(peer)] => peer.clone(),
        other => panic!("{lines:?}: {other:?}"),
    }
}

#[test]
fn get_is_get() {
    assert_eq!(parse("get=1\n\n"), Ok(Request::Get));
    assert_eq!(parse("get=1\nfoo=1\n\n").unwrap_err().errno, errno::EINVAL);
}

#[test]
fn the_device_is_set() {
    let wanted = vec![
        SetItem::PrivateKey(Some(PrivateKey::from_hex(KEY).unwrap())),
        SetItem::ListenPort(12912),
        SetItem::Fwmark(u32::MAX),
        SetItem::ReplacePeers,
    ];
    let text =
        format!("private_key={KEY}\nlisten_port=12912\nfwmark=4294967295\nreplace_peers=true\n");
    assert_eq!(items(&text), wanted);
    assert_eq!(
        items(&format!("private_key={ZERO}\n")),
        [SetItem::PrivateKey(None)]
    );
    assert_eq!(items(""), []);
}

#[test]
fn peers_are_set() {
    let peer = only_peer(&format!(
        "update_only=true\nprotocol_version=1\npreshared_key={OTHER}\nendpoint=[abcd:23::33%2]:51820\n\
         persistent_keepalive_interval=111\nreplace_allowed_ips=true\nallowed_ip=192.168.4.4/24\nallowed_ip=-fd00::1/64\n"
    ));
    let change = |prefix: &str, remove| AllowedIpChange {
        prefix: prefix.parse().unwrap(),
        remove,
    };
    let wanted = PeerChange {
        update_only: true,
        preshared_key: Some(PresharedKey::from_hex(OTHER).unwrap()),
        endpoint: Some("[abcd:23::33%2]:51820".parse().unwrap()),
        keepalive: Some(111),
        replace_allowed_ips: true,
        allowed_ips: vec![change("192.168.4.0/24", false), change("fd00::/64", true)],
        ..PeerChange::new(PublicKey::from_hex(KEY).unwrap())
    };
    assert_eq!(peer, wanted);
    let two = items(&format!(
        "public_key={KEY}\nremove=true\npublic_key={OTHER}\nendpoint=182.122.22.19:3233\n"
    ));
    assert!(matches!(&two[0], SetItem::Peer(peer) if peer.remove));
    assert!(
        matches!(&two[1], SetItem::Peer(peer) if peer.endpoint == Some("182.122.22.19:3233".parse().unwrap()))
    );
}

#[test]
fn a_zero_preshared_key_takes_one_away() {
    assert!(
        only_peer(&format!("preshared_key={ZERO}\n"))
            .preshared_key
            .is_some_and(|key| key.is_zero())
    );
}

#[test]
fn replacing_forgets_what_the_request_gave_before() {
    let peer =
        only_peer("allowed_ip=10.0.0.0/8\nreplace_allowed_ips=true\nallowed_ip=10.1.0.0/16\n");
    assert_eq!(peer.allowed_ips.len(), 1);
}

#[test]
fn scopes_by_name_are_left_to_look_up() {
    let peer = only_peer("endpoint=192.0.2.1:5\nendpoint=[fe80::1%eth7]:5\n");
    assert_eq!(peer.endpoint, None);
    assert_eq!(peer.lookup.unwrap().lookup_name(), "fe80::1%eth7");
    let peer = only_peer("endpoint=[fe80::1%eth7]:5\nendpoint=192.0.2.1:5\n");
    assert_eq!(
        (peer.endpoint, peer.lookup),
        (Some("192.0.2.1:5".parse().unwrap()), None)
    );
}

/// What wireguard-tools 1.0.20210914 sent for `wg syncconf`, keys replaced.
#[test]
fn a_recorded_syncconf_is_read() {
    let items = items(&format!(
        "private_key={KEY}\nlisten_port=51820\nfwmark=51820\npublic_key={OTHER}\nremove=true\n\
         public_key={KEY}\npreshared_key={OTHER}\nendpoint=[fe80::1%lo]:5\npersistent_keepalive_interval=0\n\
         replace_allowed_ips=true\nallowed_ip=10.0.0.1/8\nallowed_ip=fd00::5/64\n\
         public_key={OTHER}\nendpoint=192.0.2.1:7\nreplace_allowed_ips=true\n"
    ));
    assert_eq!(items.len(), 6);
    assert!(
        matches!(&items[4], SetItem::Peer(peer) if peer.keepalive == Some(0) && peer.allowed_ips.len() == 2)
    );
}

#[test]
fn bad_lines_are_refused_with_einval() {
    for lines in [
        "listen_port=65536\n",
        "listen_port=-1\n",
        "listen_port=\n",
        "listen_port=0x10\n",
        "fwmark=4294967296\n",
        "replace_peers=false\n",
        "private_key=00\n",
        "private_key=zz\n",
        "nonsense=1\n",
        "remove=true\n",
        "allowed_ip=10.0.0.0/8\n",
        &format!("public_key={KEY}\nlisten_port=1\n"),
        &format!("public_key={KEY}\nremove=false\n"),
        &format!("public_key={KEY}\nupdate_only=1\n"),
        &format!("public_key={KEY}\nprotocol_version=2\n"),
        &format!("public_key={KEY}\nallowed_ip=10.0.0.0\n"),
        &format!("public_key={KEY}\nallowed_ip=10.0.0.0/33\n"),
        &format!("public_key={KEY}\nallowed_ip=--10.0.0.0/8\n"),
        &format!("public_key={KEY}\nendpoint=gw.example:51820\n"),
        &format!("public_key={KEY}\nendpoint=10.0.0.1\n"),
        &format!("public_key={KEY}\npersistent_keepalive_interval=65536\n"),
        &format!("public_key={KEY}\nreplace_allowed_ips=yes\n"),
        &format!("public_key={}\n", &KEY[1..]),
        &format!("{}=1\n", "k".repeat(600)),
    ] {
        let error = refused(lines);
        assert_eq!(
            (error.errno, error.fatal),
            (errno::EINVAL, false),
            "{lines}"
        );
    }
    assert_eq!(refused("listen_port\n").errno, errno::EPROTO);
}

#[test]
fn no_message_shows_a_key() {
    for lines in [
        format!("private_key={KEY}0\n"),
        format!("{KEY}=private_key\n"),
        format!("public_key={KEY}\npreshared_key={OTHER}x\n"),
        format!("public_key={KEY}\nendpoint={OTHER}\n"),
        format!("replace_peers={KEY}\n"),
    ] {
        let message = refused(&lines).message;
        assert!(
            !message.contains(&KEY[..16]) && !message.contains(&OTHER[..16]),
            "{message}"
        );
    }
}

#[test]
fn a_faulty_request_is_read_to_its_end() {
    let text = "set=1\nlisten_port=x\nlisten_port=5\n\nget=1\n\n";
    let mut parser = Parser::new();
    let Step::Complete { consumed, request } = parser.push(text.as_bytes()) else {
        panic!("goes on")
    };
    assert_eq!(&text[consumed..], "get=1\n\n");
    assert!(request.is_err());
    let next = parser.push(&text.as_bytes()[consumed..]);
    assert_eq!(
        next,
        Step::Complete {
            consumed: 7,
            request: Ok(Request::Get)
        }
    );
    assert!(parser.is_idle());
}

#[test]
fn an_unknown_operation_ends_the_connection() {
    for text in ["get=2\n", "hello\n", "GET / HTTP/1.1\n", "=\n"] {
        assert!(parse(text).unwrap_err().fatal, "{text}");
    }
}

#[test]
fn blank_lines_between_requests_are_nothing() {
    let mut parser = Parser::new();
    assert_eq!(parser.push(b"\n\n"), Step::More);
    assert!(parser.is_idle());
}

#[test]
fn a_request_is_bounded() {
    let mut parser = Parser::new().with_limit(1000);
    assert_eq!(parser.push(b"set=1\n"), Step::More);
    let mut pushed = 6;
    let error = loop {
        match parser.push(b"xxxxxxxxxx") {
            Step::More => pushed += 10,
            Step::Complete { request, .. } => break request.unwrap_err(),
        }
        assert!(pushed <= 1000);
        assert!(parser.line.capacity() <= MAX_LINE_BYTES);
    };
    assert!(error.fatal);
    assert_eq!(error.errno, errno::ENOSPC);
}

#[test]
fn repeated_device_keys_are_bounded() {
    assert_eq!(
        refused(&"replace_peers=true\n".repeat(1000)).errno,
        errno::EINVAL
    );
}

#[test]
fn a_set_of_130000_allowed_ips_is_fast() {
    let mut text = format!("set=1\npublic_key={KEY}\nreplace_allowed_ips=true\n");
    for number in 0..130_000u32 {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        text.extend(["allowed_ip=", &address.to_string(), "/32\n"]);
    }
    text.push('\n');
    let started = Instant::now();
    let mut parser = Parser::new();
    let mut found = None;
    for piece in text.as_bytes().chunks(4096) {
        if let Step::Complete {
            request: Ok(Request::Set(items)),
            ..
        } = parser.push(piece)
        {
            found = Some(items);
        }
    }
    assert!(matches!(&found.unwrap()[0], SetItem::Peer(peer) if peer.allowed_ips.len() == 130_000));
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

proptest! {
    #[test]
    fn any_pieces_give_the_same(cuts in proptest::collection::vec(1usize..40, 1..40)) {
        let text = format!(
            "set=1\nprivate_key={KEY}\nreplace_peers=true\npublic_key={OTHER}\nendpoint=[::1]:5\nallowed_ip=::/0\n\n"
        );
        let whole = parse(&text);
        let mut parser = Parser::new();
        let mut rest = text.as_bytes();
        for cut in cuts.into_iter().cycle() {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            rest = after;
            if let Step::Complete { consumed, request } = parser.push(piece) {
                prop_assert_eq!(consumed, piece.len());
                prop_assert_eq!(request, whole);
                break;
            }
            prop_assert!(!rest.is_empty());
        }
    }

    #[test]
    fn a_hostile_stream_never_panics(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("set=1\n".to_owned()),
                Just("get=1\n".to_owned()),
                Just("\n".to_owned()),
                Just(format!("public_key={KEY}\n")),
                "(allowed_ip|endpoint|preshared_key|remove|listen_port|fwmark)=[-0-9a-f.:/\\[\\]%]{0,70}\n",
                ".{0,40}\n?",
            ],
            0..40,
        ),
        noise in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut stream = lines.concat().into_bytes();
        stream.extend_from_slice(&noise);
        let mut parser = Parser::new().with_limit(4096);
        let mut rest = stream.as_slice();
        while let Step::Complete { consumed, .. } = parser.push(rest) {
            prop_assert!(consumed > 0 && consumed <= rest.len());
            rest = &rest[consumed..];
        }
    }
}
