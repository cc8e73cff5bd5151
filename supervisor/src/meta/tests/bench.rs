//! What a bogus message costs; run with `--ignored --nocapture` in a release build.

use super::rig::Rig;
use std::time::Instant;

#[test]
#[ignore = "a measurement"]
fn bogus_initiations_a_second() {
    let mut rig = Rig::new(8, 64);
    let mut noise = [7; 148];
    noise[..4].copy_from_slice(&[1, 0, 0, 0]);
    let began = Instant::now();
    for _ in 0..1_000_000 {
        rig.arrive(&noise, "203.0.113.7:1000");
    }
    println!("{:?} for a million", began.elapsed());
}
