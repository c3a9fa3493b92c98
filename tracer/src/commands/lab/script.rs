//! What is done to the lab of a control, each thing in its time.

use std::thread::JoinHandle;
use std::time::Instant;

use super::controls::{Deed, Script};
use super::{ClientThread, Plan, client_settings};
use crate::lab::{Lab, LabError, Sink};
use crate::loadgen::client;
use crate::sys::netns::NetnsError;
use crate::sys::stop::Stop;

/// Does what the script says, each thing in its time.
pub(super) fn play(
    script: &Script,
    lab: &Lab,
    sink: Sink<'_>,
    over: &Stop,
) -> Result<(), LabError> {
    let began = Instant::now();
    for (at, deed) in script {
        if !over.wait(at.saturating_sub(began.elapsed())) {
            return Err(LabError::Stopped);
        }
        match deed {
            Deed::Rollout => lab.rollout(sink, over)?,
            Deed::OverlappingRollouts(gap) => lab.overlapping_rollouts(*gap, sink, over)?,
            Deed::DropSyns(count) => lab.drop_syns(*count)?,
            Deed::SpoilSyns(count) => lab.spoil_syns(*count)?,
            Deed::Reassign => lab.reassign(sink, over)?,
            Deed::LoseNodes => lab.lose_nodes()?,
            Deed::DoubtLost => lab.doubt_lost(sink),
            Deed::EvictLost => lab.evict_lost(sink, over)?,
            Deed::ScaleDown(left) => lab.scale_down(*left, sink, over)?,
            Deed::Hold(states, each) => lab.hold(states, *each, over)?,
            Deed::LetGo => lab.let_go()?,
            Deed::ResetNewest(count) => lab.reset_newest(*count, sink, over)?,
            Deed::Freeze => lab.freeze_newest()?,
        }
    }
    Ok(())
}

/// Lets the client ask, and does things to the lab, before anyone looks. What the client saw is not kept.
pub(super) fn prelude(plan: &Plan, lab: &Lab, stop: &Stop) -> anyhow::Result<()> {
    let Some((duration, script)) = &plan.prelude else { return Ok(()) };
    let settings =
        client::ClientSettings { duration: Some(*duration), ..client_settings(plan, lab) };
    let over = Stop::default();
    let (asked, ended) = (stop.clone(), over.clone());
    let client = lab.in_client(move || {
        let closes = client::run(&settings, &asked, &mut |_| {});
        ended.request();
        closes.map(drop)
    })?;
    let played = play(script, lab, &|_| {}, &over);
    client.join().map_err(|_| anyhow::anyhow!("a thread of the lab panicked"))???;
    match played {
        Ok(()) | Err(LabError::Stopped) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Starts the second client's load, if there is one. What it sees is not kept: it asks beside the one that is traced.
pub(super) fn start_second(
    plan: &Plan,
    lab: &Lab,
    over: &Stop,
) -> Result<Option<ClientThread>, NetnsError> {
    let Some(netns) = lab.second_client() else { return Ok(None) };
    let settings = client_settings(plan, lab);
    let over = over.clone();
    let work = move || client::run(&settings, &over, &mut |_| {}).map(drop);
    let thread: JoinHandle<_> = netns.spawn(work)?;
    Ok(Some(thread))
}
