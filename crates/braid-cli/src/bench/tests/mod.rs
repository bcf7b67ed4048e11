mod choices;
mod lies;
mod parts;
