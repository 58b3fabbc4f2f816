//! Owns load that lasts: connections that talk without a pause, and new ones at a rate, with a count of what fails.
//! Knows nothing of what happens in the meantime.
