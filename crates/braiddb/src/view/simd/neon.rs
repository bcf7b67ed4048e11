//! NEON implementations: 128-bit vectors, which every 64-bit ARM processor has. A segment's lanes
//! take two.
//!
//! ARM has no instruction that collects the top bits of all lanes. [`gather`] replaces it: each
//! lane keeps the bit of its place among eight, and three rounds of pairwise additions bring eight
//! lanes into one byte.

use super::{Lanes, Node, Window, Words};
use std::arch::aarch64::*;

type Pair = [uint8x16_t; 2];

const PLACES: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// The bit of a byte that the last three bits of a difference select: bit 0 is the topmost.
const BITS: [u8; 16] = [128, 64, 32, 16, 8, 4, 2, 1, 128, 64, 32, 16, 8, 4, 2, 1];

#[inline]
#[target_feature(enable = "neon")]
fn load(lanes: &Lanes) -> Pair {
    // SAFETY: the 32 bytes hold two vectors of 16, of any alignment.
    unsafe { [vld1q_u8(lanes.as_ptr()), vld1q_u8(lanes.as_ptr().add(16))] }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_bytes(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: 16 bytes, of any alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn gather([low, high]: Pair) -> u32 {
    let places = load_bytes(&PLACES);
    let fours = vpaddq_u8(vandq_u8(low, places), vandq_u8(high, places));
    let twos = vpaddq_u8(fours, fours);
    vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vpaddq_u8(twos, twos)))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn match_lanes(lanes: &Lanes, mask: u8, byte: u8) -> u32 {
    let [low, high] = load(lanes);
    let (mask, byte) = (vdupq_n_u8(mask), vdupq_n_u8(byte));
    gather([vceqq_u8(vandq_u8(low, mask), byte), vceqq_u8(vandq_u8(high, mask), byte)])
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn lanes_at_most(lanes: &Lanes, byte: u8) -> u32 {
    let [low, high] = load(lanes);
    let byte = vdupq_n_u8(byte);
    gather([vcleq_u8(low, byte), vcleq_u8(high, byte)])
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn match_words(words: &Words, mask: u32, want: u32) -> u32 {
    let (mask, want) = (vdupq_n_u32(mask), vdupq_n_u32(want));
    let compare = |quarter: usize| {
        // SAFETY: sixteen words are four vectors of four.
        let words = unsafe { vld1q_u32(words.as_ptr().add(4 * quarter)) };
        vreinterpretq_u16_u32(vceqq_u32(vandq_u32(words, mask), want))
    };
    // Each 32-bit result shrinks to one byte.
    let low = vreinterpretq_u8_u16(vuzp1q_u16(compare(0), compare(1)));
    let high = vreinterpretq_u8_u16(vuzp1q_u16(compare(2), compare(3)));
    gather([vuzp1q_u8(low, high), vdupq_n_u8(0)])
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn rank_in_node(node: &Node, head: i64) -> usize {
    let head = vdupq_n_s64(head);
    let mut greater = vdupq_n_s64(0);
    for pair in 0..node.0.len() / 2 {
        // SAFETY: a node is 16 numbers: eight vectors of two.
        let heads = unsafe { vld1q_s64(node.0.as_ptr().add(2 * pair)) };
        // A comparison gives -1 for true: subtracting it counts.
        greater = vsubq_s64(greater, vreinterpretq_s64_u64(vcgtq_s64(heads, head)));
    }
    node.0.len() - vaddvq_s64(greater) as usize
}

/// Moves the vectors up by `$n` lanes (1 to 15); 255 fills the free lanes.
macro_rules! shift_up {
    ($pair:expr, $n:literal) => {{
        let [low, high] = $pair;
        [vextq_u8::<{ 16 - $n }>(vdupq_n_u8(255), low), vextq_u8::<{ 16 - $n }>(low, high)]
    }};
}

#[inline]
#[target_feature(enable = "neon")]
fn compose(a: &mut Pair, c: &mut Pair, a1: Pair, c1: Pair) {
    for half in 0..2 {
        // c' = if c1 <= a2 { c1 } else { c2 }; a' = min(a1, a2)
        c[half] = vbslq_u8(vcleq_u8(c1[half], a[half]), c1[half], c[half]);
        a[half] = vminq_u8(a1[half], a[half]);
    }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn blind_candidate(differences: &Lanes, window: &Window) -> usize {
    let ones = vdupq_n_u8(255);
    let [low, high] = load(differences);
    let differences = [vsetq_lane_u8::<0>(255, low), high];
    // SAFETY: the four words hold two vectors of two.
    let query = unsafe { [vld1q_u64(window.as_ptr()), vld1q_u64(window.as_ptr().add(2))] };
    let query = uint8x16x2_t(vreinterpretq_u8_u64(query[0]), vreinterpretq_u8_u64(query[1]));
    let bits = load_bytes(&BITS);
    // Where the query's bit is set, 255; where it is clear, the difference itself.
    let threshold = |d: uint8x16_t| {
        let byte = vqtbl2q_u8(query, vshrq_n_u8::<3>(d));
        let bit = vqtbl1q_u8(bits, vandq_u8(d, vdupq_n_u8(7)));
        vorrq_u8(d, vtstq_u8(byte, bit))
    };
    let mut a = differences;
    let mut c = [threshold(differences[0]), threshold(differences[1])];
    let (a1, c1) = (shift_up!(a, 1), shift_up!(c, 1));
    compose(&mut a, &mut c, a1, c1);
    let (a1, c1) = (shift_up!(a, 2), shift_up!(c, 2));
    compose(&mut a, &mut c, a1, c1);
    let (a1, c1) = (shift_up!(a, 4), shift_up!(c, 4));
    compose(&mut a, &mut c, a1, c1);
    let (a1, c1) = (shift_up!(a, 8), shift_up!(c, 8));
    compose(&mut a, &mut c, a1, c1);
    // The last step, by 16 lanes, moves one half onto the other.
    c[1] = vbslq_u8(vcleq_u8(c[0], a[1]), c[0], c[1]);
    let taken = gather([vceqq_u8(c[0], ones), vceqq_u8(c[1], ones)]);
    let same_key = gather([vceqq_u8(differences[0], ones), vceqq_u8(differences[1], ones)]);
    31 - (taken & !same_key | 1).leading_zeros() as usize
}
