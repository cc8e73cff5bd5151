//! The helper: what meta must not do itself, since it blocks or needs the file system.
//!
//! It looks names up, reads and writes the configuration, runs the peers' commands, each on meta's
//! typed request and with a time limit. It maps no segment and holds no key but the ones inside a
//! configuration that passes through. It ends when its stream to meta reads end of file.

mod files;
pub(crate) mod protocol;
mod resolve;
mod scripts;

use crossbeam_queue::ArrayQueue;
use protocol::{FrameReader, HelperAnswer, HelperJob, Outcome, Work};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;
use zeroize::Zeroize;

/// Jobs that may wait in each queue.
const QUEUE: usize = 256;
/// A resolver may hang for half a minute, so several names are asked for at once.
const RESOLVERS: usize = 4;
/// Commands at once. Meta gives no more than that, so that a command's time counts from its start.
pub(crate) const RUNNERS: usize = 4;

/// Why the helper ends before its stream does.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelperError {
    /// The stream failed.
    #[error("the stream to meta failed: {0}")]
    Stream(#[from] io::Error),
    /// Meta sent what is no message.
    #[error("meta sent what is no job: {0}")]
    Frame(#[from] ringway_proto::codec::CodecError),
}

/// Serves jobs until the stream ends; a script that runs then gets a short grace.
pub(crate) fn run(meta: OwnedFd) -> Result<(), HelperError> {
    let mut stream = UnixStream::from(meta);
    stream.set_nonblocking(false)?;
    let answers = Arc::new(Mutex::new(stream.try_clone()?));
    let stopping = Arc::new(AtomicBool::new(false));
    let pools = Pools {
        names: Pool::start("resolve", RESOLVERS, &answers, &stopping)?,
        files: Pool::start("files", 1, &answers, &stopping)?,
        scripts: Pool::start("scripts", RUNNERS, &answers, &stopping)?,
    };
    let served = serve(&mut stream, &pools, &answers);
    stopping.store(true, Ordering::Release);
    pools.files.finish();
    pools.scripts.finish();
    // A resolver's look-up can't be ended from outside; it goes with the process.
    served
}

struct Pools {
    names: Pool,
    files: Pool,
    scripts: Pool,
}

fn serve(
    stream: &mut UnixStream,
    pools: &Pools,
    answers: &Mutex<UnixStream>,
) -> Result<(), HelperError> {
    let mut reader = FrameReader::default();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let count = match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        reader.push(&chunk[..count]);
        chunk[..count].zeroize();
        while let Some(job) = reader.next::<HelperJob>()? {
            let pool = match job.work {
                Work::Resolve { .. } => &pools.names,
                Work::ReadConfig { .. } | Work::WriteConfig { .. } => &pools.files,
                Work::Script { .. } => &pools.scripts,
            };
            if let Err(job) = pool.push(job) {
                let result = Err(format!("too many jobs wait ({QUEUE}): try again later"));
                answer(answers, &HelperAnswer { id: job.id, result });
            }
        }
    }
}

/// Threads of one kind of work and the queue that feeds them.
struct Pool {
    queue: Arc<ArrayQueue<HelperJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    fn start(
        name: &str,
        threads: usize,
        answers: &Arc<Mutex<UnixStream>>,
        stopping: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let queue = Arc::new(ArrayQueue::new(QUEUE));
        let threads = (0..threads)
            .map(|_| {
                let (queue, answers, stopping) = (queue.clone(), answers.clone(), stopping.clone());
                thread::Builder::new()
                    .name(name.to_owned())
                    .spawn(move || work_off(&queue, &answers, &stopping))
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self { queue, threads })
    }

    fn push(&self, job: HelperJob) -> Result<(), HelperJob> {
        self.queue.push(job)?;
        self.threads
            .iter()
            .map(JoinHandle::thread)
            .for_each(Thread::unpark);
        Ok(())
    }

    fn finish(self) {
        for thread in self.threads {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn work_off(queue: &ArrayQueue<HelperJob>, answers: &Mutex<UnixStream>, stopping: &AtomicBool) {
    loop {
        if let Some(job) = queue.pop() {
            let result = perform(job.work, stopping);
            answer(answers, &HelperAnswer { id: job.id, result });
        } else if stopping.load(Ordering::Acquire) {
            return;
        } else {
            // An unpark between the pop and this is not lost: it makes the park return at once.
            thread::park();
        }
    }
}

fn perform(work: Work, stopping: &AtomicBool) -> Result<Outcome, String> {
    match work {
        Work::Resolve { host, port } => resolve::resolve(&host, port).map(Outcome::Addresses),
        Work::ReadConfig { path } => {
            files::read_config(&path).map(|config| Outcome::Config(Box::new(config)))
        }
        Work::WriteConfig { path, mut contents } => {
            let written = files::write_config(&path, &contents);
            contents.zeroize();
            written.map(|()| Outcome::Written)
        }
        Work::Script {
            command,
            environment,
            timeout_ms,
        } => {
            let limit = Duration::from_millis(u64::from(timeout_ms));
            scripts::run(&command, &environment, limit, stopping).map(|()| Outcome::ScriptDone)
        }
    }
}

/// Sends an answer; meta being gone is noticed where the stream is read.
fn answer(stream: &Mutex<UnixStream>, answer: &HelperAnswer) {
    let Ok(bytes) = protocol::frame(answer) else {
        return;
    };
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = stream.write_all(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(stream: &mut UnixStream, reader: &mut FrameReader, job: &HelperJob) -> HelperAnswer {
        stream.write_all(&protocol::frame(job).unwrap()).unwrap();
        let mut chunk = [0; 4096];
        loop {
            if let Some(answer) = reader.next().unwrap() {
                return answer;
            }
            let count = stream.read(&mut chunk).unwrap();
            assert_ne!(count, 0);
            reader.push(&chunk[..count]);
        }
    }

    #[test]
    fn serves_jobs_and_ends_with_the_stream() {
        let (mut meta, helper) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || run(helper.into()));
        let mut reader = FrameReader::default();
        let work = Work::Resolve {
            host: "127.0.0.1".into(),
            port: 7,
        };
        let got = ask(&mut meta, &mut reader, &HelperJob { id: 1, work });
        let want = Outcome::Addresses(vec!["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(
            got,
            HelperAnswer {
                id: 1,
                result: Ok(want)
            }
        );
        let work = Work::Script {
            command: "true".into(),
            environment: vec![],
            timeout_ms: 5000,
        };
        let got = ask(&mut meta, &mut reader, &HelperJob { id: 2, work });
        assert_eq!(got.result, Ok(Outcome::ScriptDone));
        let work = Work::ReadConfig {
            path: "/nonexistent.conf".into(),
        };
        let got = ask(&mut meta, &mut reader, &HelperJob { id: 3, work });
        assert!(got.result.unwrap_err().contains("/nonexistent.conf"));
        drop(meta);
        thread.join().unwrap().unwrap();
    }
}
