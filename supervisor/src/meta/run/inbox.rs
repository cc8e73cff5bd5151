//! What the supervisor says and the helper answers.

use super::super::MetaError;
use super::super::core::Core;
use super::super::jobs::JobPurpose;
use super::super::link::Helper;
use super::super::reload::Reload;
use super::super::requests::Purpose;
use super::super::sockets::Socket;
use super::{HELPER, Loop, MESSAGES, SOCKETS, UAPI};
use crate::channel::{self, FromMeta, Granted, Refused, ToMeta};
use crate::helper::protocol::{HelperAnswer, Outcome};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::{AsFd, OwnedFd};

impl Loop {
    pub(super) fn take_answers(&mut self) -> Result<(), MetaError> {
        for answer in self.helper.receive() {
            self.answer(answer);
        }
        self.watch_helper()
    }

    pub(super) fn answer(&mut self, answer: HelperAnswer) {
        let HelperAnswer { id, result } = answer;
        match self.core.jobs.take(id) {
            Some(JobPurpose::Resolve { peer, incarnation }) => {
                self.core.resolved(peer, incarnation, id, result);
            }
            Some(JobPurpose::Script { public_key }) => self.core.script_done(public_key, result),
            Some(JobPurpose::Reload) => self.reload(|reload, core| reload.read(core, result)),
            Some(JobPurpose::Save { id }) => {
                let result = match result {
                    Ok(Outcome::Written) => Ok(String::new()),
                    Ok(_) => Err("the helper answered something else".to_owned()),
                    Err(error) => Err(error),
                };
                self.core.done(id, result);
            }
            None => {}
        }
    }

    pub(super) fn take_messages(&mut self) -> Result<(), MetaError> {
        for _ in 0..MESSAGES {
            match self.supervisor.receive() {
                Ok(Some((message, fds))) => self.message(message, fds)?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::debug!("the supervisor is gone: {error}");
                    self.stopping = true;
                    return Ok(());
                }
            }
        }
        self.again = true;
        Ok(())
    }

    fn message(&mut self, message: ToMeta, fds: Vec<OwnedFd>) -> Result<(), MetaError> {
        match message {
            ToMeta::Start(start) => {
                let memfd = fds.into_iter().next().ok_or(MetaError::NoConfig)?;
                let config = channel::read_config(memfd).map_err(MetaError::Channel)?;
                if !std::mem::replace(&mut self.started, true) {
                    self.core.start(start, &config)?;
                    // Not before: the configuration would undo what `wg` had set already.
                    self.watch(UAPI, EpollFlags::EPOLLIN)?;
                    self.ready_due = true;
                }
            }
            ToMeta::Sockets { generation, groups } => {
                // Closed by their last owner, and so out of the epoll set.
                for socket in &self.sockets {
                    let _ = self.epoll.delete(socket.as_fd());
                }
                self.sockets = fds
                    .into_iter()
                    .zip(groups)
                    .map(|(fd, info)| Socket::new(fd, info))
                    .collect();
                for (number, socket) in self.sockets.iter().enumerate() {
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, SOCKETS + number as u64);
                    self.epoll.add(socket.as_fd(), event)?;
                }
                let v4 = self.sockets.iter().any(|socket| !socket.is_v6());
                let v6 = self.sockets.iter().any(Socket::is_v6);
                self.core
                    .sockets_changed(self.sockets.first().map_or(0, Socket::port), v4, v6);
                self.supervisor
                    .queue([FromMeta::SocketsTaken { generation }]);
            }
            ToMeta::Answer { id, result } => self.granted(id, result),
            ToMeta::Helper => {
                if !self.helper.has_ended() {
                    let _ = self.epoll.delete(self.helper.as_fd());
                }
                let stream = fds.into_iter().next().ok_or(MetaError::NoHelper)?;
                self.helper = Helper::new(stream)?;
                self.helper_watched = EpollFlags::EPOLLIN;
                self.watch(HELPER, EpollFlags::EPOLLIN)?;
                for id in self.core.ask_again() {
                    self.answer(HelperAnswer {
                        id,
                        result: Err("the helper died: try again".into()),
                    });
                }
            }
            ToMeta::Link { mtu, up } => self.core.link(mtu, up),
            ToMeta::LinkGone => self.core.link(0, false),
            ToMeta::AddressesChanged { gone } => self.core.addresses_gone(&gone),
            ToMeta::Reload { id, keep_runtime } => {
                if self.reload.is_some() {
                    self.core
                        .done(id, Err("another reload is under way: try again".into()));
                } else {
                    self.reload = self.core.begin_reload(id, keep_runtime);
                }
            }
            ToMeta::Save { id } => self.core.save(id),
            ToMeta::Stop => self.stopping = true,
        }
        Ok(())
    }

    /// Moves a reload on; `step` says whether it has ended.
    pub(super) fn reload(&mut self, step: impl FnOnce(&mut Reload, &mut Core) -> bool) {
        if let Some(mut reload) = self.reload.take() {
            if !step(&mut reload, &mut self.core) {
                self.reload = Some(reload);
            }
        }
    }

    fn granted(&mut self, id: u32, result: Result<Granted, Refused>) {
        match self.core.requests.take(id) {
            Some(Purpose::Transaction) => {
                self.server.answered(&mut self.core, id, result);
                self.again = true;
            }
            Some(Purpose::Reload) => self.reload(|reload, core| reload.answered(core, id, result)),
            Some(Purpose::Route {
                peer,
                incarnation,
                destination,
                ifindex,
            }) => {
                self.core
                    .route_answer(peer, incarnation, destination, ifindex, &result);
            }
            None => {}
        }
    }
}
