mod combine;
mod filter;
mod garbage;
mod plan;
