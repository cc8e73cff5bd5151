//! What a bogus message costs; run with `--ignored --nocapture` in a release build.

use super::rig::{Rig, Stock};
use std::time::Instant;

#[test]
#[ignore = "a measurement"]
fn bogus_initiations_a_second() {
    let mut rig = Rig::new(8, 64);
    let mut attacker = Stock::new(&rig);
    let (_, begging) = attacker.initiate(&rig);
    let mut noise = begging;
    noise[60] ^= 1;
    let mut claiming = begging;
    claiming[140] = 1;
    for (what, message, from_everywhere) in [
        ("noise", noise, false),
        ("begs for cookies", begging, false),
        ("begs from everywhere", begging, true),
        ("claims a cookie", claiming, false),
    ] {
        let began = Instant::now();
        for number in 0..200_000 {
            let from = if from_everywhere { number / 30 } else { 0 };
            let from = std::net::Ipv4Addr::from(0xC633_6400 + from);
            rig.arrive_from(&message, (from, 1000).into());
            if number % 1000 == 999 {
                while rig.core.work_off() {}
                rig.sent();
            }
        }
        let each = began.elapsed() / 200_000;
        println!("{what}: {each:?} a message");
    }
}
