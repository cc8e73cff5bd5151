//! Getting hold of a gateway's readable segments, from whoever still has them.
//!
//! The supervisor hands descriptors out over the control socket. Where it does not answer, root opens them through
//! `/proc/PID/fd` of any process of the gateway: a look needs nothing from the daemon but a descriptor, so it works
//! while processes are stopped or dead.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ringway_proto::control::{Info, ReadableSegment};
use ringway_shm::rings::Rings;
use ringway_shm::segment::{Access, Geometry, Segment, SegmentError, SegmentKind};
use ringway_shm::state::State;

use crate::control::{self, Trouble};
use crate::error::{Failure, Outcome};
use crate::runtime::Runtime;

/// A gateway that can be looked into.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// Its name.
    pub(crate) name: String,
    /// Peers and routes.
    pub(crate) state: State,
    /// Rings, counters and process slots.
    pub(crate) rings: Rings,
    /// The sizes that were fixed at start.
    pub(crate) geometry: Geometry,
    /// The descriptors, with the segment's name: what is shown of the memory itself.
    pub(crate) segments: Vec<(SegmentKind, File)>,
    runtime: Runtime,
    /// Whether the supervisor answered when it was asked for the descriptors.
    answers: bool,
}

impl Gateway {
    /// Attaches to the gateway `name`.
    pub(crate) fn attach(runtime: &Runtime, name: &str) -> Outcome<Gateway> {
        let trouble = match control::segments(runtime, name) {
            Ok(fds) => {
                let fd = |wanted| fds.iter().position(|(kind, _)| *kind == wanted);
                return match (fd(ReadableSegment::State), fd(ReadableSegment::Rings)) {
                    (Some(state), Some(rings)) => {
                        let clone = |at: usize| fds[at].1.try_clone();
                        let fds = clone(state).and_then(|state| Ok((state, clone(rings)?)));
                        let (state, rings) = fds.map_err(|why| Failure::failed(why.to_string()))?;
                        Gateway::over(runtime, name, state, rings)
                            .map_err(|why| version_skew(name, &why))
                    }
                    _ => Err(Failure::Failed(format!(
                        "{name}: the supervisor gave no state or rings segment: are ringway and ringwayd of one version?"
                    ))),
                };
            }
            Err(trouble) => trouble,
        };
        if !matches!(
            trouble,
            Trouble::NotRunning | Trouble::Silent | Trouble::HungUp
        ) {
            return Err(trouble.failure(runtime, name, "look into"));
        }
        if !nix::unistd::geteuid().is_root() {
            return Err(match trouble {
                Trouble::Silent => Failure::Failed(format!(
                    "{name}: the supervisor did not answer within {} ms: run as root to read its memory through /proc",
                    control::PATIENCE.as_millis()
                )),
                other => other.failure(runtime, name, "look into"),
            });
        }
        match find_in_proc(Path::new("/proc"), name) {
            Some((pid, state, rings)) => {
                let gateway = Gateway::over(runtime, name, state, rings)
                    .map_err(|why| version_skew(name, &why))?;
                eprintln!(
                    "ringway: {name}: the supervisor does not answer; reading through /proc/{pid}/fd"
                );
                Ok(Gateway {
                    answers: false,
                    ..gateway
                })
            }
            None => Err(trouble.failure(runtime, name, "look into")),
        }
    }

    /// The gateway behind two descriptors.
    pub(crate) fn over(
        runtime: &Runtime,
        name: &str,
        state: OwnedFd,
        rings: OwnedFd,
    ) -> Result<Gateway, SegmentError> {
        let state_segment = Segment::attach(state.as_fd(), SegmentKind::State, Access::ReadOnly)?;
        let rings_segment = Segment::attach(rings.as_fd(), SegmentKind::Rings, Access::ReadOnly)?;
        Ok(Gateway {
            name: name.to_owned(),
            state: State::attach(&state_segment)?,
            rings: Rings::attach(&rings_segment)?,
            geometry: state_segment.geometry(),
            segments: vec![
                (SegmentKind::State, File::from(state)),
                (SegmentKind::Rings, File::from(rings)),
            ],
            runtime: runtime.clone(),
            answers: true,
        })
    }

    /// What only the supervisor knows; `None` when it does not answer.
    pub(crate) fn info(&self) -> Option<Info> {
        if !self.answers {
            // Asked once already: not to wait for it again.
            return None;
        }
        control::info(&self.runtime, &self.name).ok()
    }
}

fn version_skew(name: &str, why: &SegmentError) -> Failure {
    Failure::Failed(format!("{name}: {why}"))
}

/// The descriptors of the gateway `name` in any process that holds both of them.
pub(crate) fn find_in_proc(proc: &Path, name: &str) -> Option<(u32, OwnedFd, OwnedFd)> {
    let processes = fs::read_dir(proc).ok()?;
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids {
        if let Some((state, rings)) = held_by(&proc.join(pid.to_string()).join("fd"), name) {
            return Some((pid, state, rings));
        }
    }
    None
}

fn held_by(directory: &Path, name: &str) -> Option<(OwnedFd, OwnedFd)> {
    let mut state = None;
    let mut rings = None;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let is_segment = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:ringway"));
        if !is_segment {
            continue;
        }
        // The kernel opens the memory anew, for reading only.
        let Ok(file) = File::open(entry.path()) else {
            continue;
        };
        let fd = OwnedFd::from(file);
        if state.is_none() && holds_state_of(&fd, name) {
            state = Some(fd);
        } else if rings.is_none()
            && Segment::attach(fd.as_fd(), SegmentKind::Rings, Access::ReadOnly).is_ok()
        {
            rings = Some(fd);
        }
        if state.is_some() && rings.is_some() {
            break;
        }
    }
    Some((state?, rings?))
}

fn holds_state_of(fd: &OwnedFd, name: &str) -> bool {
    Segment::attach(fd.as_fd(), SegmentKind::State, Access::ReadOnly)
        .and_then(|segment| State::attach(&segment))
        .ok()
        .and_then(|state| state.gateway())
        .is_some_and(|gateway| gateway.name.as_str() == name)
}
