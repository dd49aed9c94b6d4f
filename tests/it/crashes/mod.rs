//! A server that dies: what it knows afterwards, and whether anything is granted twice.

mod aftermath;
mod killed;
mod load;
mod power;
mod torn;
mod trial;
