//! The Zipfian distribution: the item of rank `k` has a frequency proportional to `1 / k^theta`.
//!
//! Sampled by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate
//! variates from monotone discrete distributions", ACM TOMACS 6(3), 1996): exact for every theta,
//! in constant time. `H` is the integral of `h(x) = x^-theta`. A point under the curve is drawn and
//! inverted; the nearest rank is accepted if the point is in that rank's bar.

use crate::random::Random;

#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    theta: f64,
    /// `H(1.5)` minus the bar of the first rank; and `H` at the end.
    area_first: f64,
    area_end: f64,
    /// A point this close below its rank is accepted without a check.
    sure: f64,
}

impl Zipf {
    pub fn new(count: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { count: count as f64, theta, area_first: 0.0, area_end: 0.0, sure: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_end = zipf.area(count as f64 + 0.5);
        zipf.sure = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_end + random.fraction() * (self.area_first - self.area_end);
            let x = self.area_inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.sure || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// Returns `H(x)`: `(x^(1 - theta) - 1) / (1 - theta)`, or `ln(x)` if theta is 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let exponent = (1.0 - self.theta) * log;
        // Near theta = 1 the quotient loses all digits.
        let factor = if exponent.abs() > 1e-8 { exponent.exp_m1() / exponent } else { 1.0 + exponent / 2.0 };
        factor * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.theta)).max(-1.0);
        let factor = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (factor * area).exp()
    }
}
