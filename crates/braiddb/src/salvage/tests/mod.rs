mod battery;
mod damage;
mod places;
mod sample;
mod units;
