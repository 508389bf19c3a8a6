//! The protocol between components, explored: every interleaving of what can happen to a few of
//! them.

mod ahead;
mod explore;
mod late;
mod paper;
mod roots;
mod rules;
mod world;
