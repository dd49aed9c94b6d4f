//! Goes through the states of a world.

use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// Goes through all states, and finds nothing but what must happen.
pub(crate) fn is_safe<W: Model + Debug + Send + Sync + 'static>(world: W)
where
    W::State: Debug + Hash + Clone + PartialEq + Send + Sync,
    W::Action: Debug + Clone + PartialEq + Send + Sync,
{
    let shown = format!("{world:?}");
    let checker = world.checker().threads(1).spawn_bfs().join();
    println!("{} states, depth {}: {shown}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Finds the way to a state that must not be.
pub(crate) fn has_hole<W: Model + Send + Sync + 'static>(world: W, property: &'static str)
where
    W::State: Debug + Hash + Clone + PartialEq + Send + Sync,
    W::Action: Debug + Clone + PartialEq + Send + Sync,
{
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = world.checker().threads(1).finish_when(found).spawn_bfs().join();
    let path = checker.discovery(property).expect("the hole is there");
    println!("{property}, after {:?}", path.into_actions());
}
