//! The view's vector instructions, each with a portable version; all unsafe code for them is here.
//!
//! [`Simd::detect`] chooses the implementation once for each view; tests compare both. Operands are
//! a segment's lanes (32 bytes, one an entry) or a node of anchor heads (16 numbers).
//!
//! **Blind search** walks down the Patricia tree given by the difference bits of neighbouring keys.
//! Its state, from left to right, is one threshold `t`: the depth of the last left turn, or 255 if
//! there was none since the present candidate. Lane `i` with difference bit `d` changes it:
//!
//! ```text
//! t <= d   nothing: the walk left this part of the tree
//! t >  d   query bit d is 1: lane i is the candidate, t = 255;  bit d is 0: t = d
//! ```
//!
//! This is the function `t -> if t <= a { t } else { c }` with `a = d` and `c = 255 or d`. Two of
//! them, (a1, c1) then (a2, c2), compose to `(min(a1, a2), if c1 <= a2 { c1 } else { c2 })`, given
//! c >= a. So the walk is an associative scan of five shift steps without a branch. An older
//! version has difference 255, the identity.
//!
//! `--cfg braiddb_portable` compiles only the portable versions, to test the engine on them.

use super::bits::Window;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;

pub(crate) type Lanes = [u8; 32];

pub(crate) type Words = [u32; 16];

pub(crate) const NODE_HEADS: usize = 16;

/// Heads of an anchor node; signed for vector comparisons: see [`super::anchors`].
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Node(pub(crate) [i64; NODE_HEADS]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Simd {
    Portable,
    /// 256-bit vectors; only [`Simd::detect`] creates it.
    #[cfg(target_arch = "x86_64")]
    Avx2(HasAvx2),
    /// 128-bit vectors; only [`Simd::detect`] creates it.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(HasNeon),
}

/// Proof that the processor has AVX2, BMI1, BMI2, LZCNT and POPCNT.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HasAvx2(());

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HasNeon(());

pub(crate) trait Task {
    type Output;

    /// Must be inlined, for the instruction set known at compile time; closures are not always.
    fn run(self, simd: Simd) -> Self::Output;
}

impl Simd {
    pub(crate) fn detect() -> Simd {
        if cfg!(braiddb_portable) {
            return Simd::Portable;
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("popcnt")
        {
            return Simd::Avx2(HasAvx2(()));
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Simd::Neon(HasNeon(()));
        }
        Simd::Portable
    }

    /// Returns the lane of the only key that can equal the query. Ignores `differences[0]`.
    #[inline(always)]
    pub(crate) fn blind_candidate(self, differences: &Lanes, window: &Window) -> usize {
        match self {
            Simd::Portable => portable::blind_candidate(differences, window),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `HasAvx2` proves AVX2 and the bit instructions.
            Simd::Avx2(_) => unsafe { avx2::blind_candidate(differences, window) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            // SAFETY: `HasNeon` proves NEON.
            Simd::Neon(_) => unsafe { neon::blind_candidate(differences, window) },
        }
    }

    /// Compiles `task` for this instruction set. It should call only `inline(always)` functions.
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        match self {
            Simd::Portable => task.run(Simd::Portable),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `HasAvx2` proves AVX2 and the bit instructions.
            Simd::Avx2(has) => unsafe { avx2::run(has, task) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Simd::Neon(has) => task.run(Simd::Neon(has)),
        }
    }

    /// Returns a bit for each word that equals `want` in the bits of `mask`.
    #[inline(always)]
    pub(crate) fn match_words(self, words: &Words, mask: u32, want: u32) -> u32 {
        match self {
            Simd::Portable => portable::match_words(words, mask, want),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `HasAvx2` proves AVX2.
            Simd::Avx2(_) => unsafe { avx2::match_words(words, mask, want) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            // SAFETY: `HasNeon` proves NEON.
            Simd::Neon(_) => unsafe { neon::match_words(words, mask, want) },
        }
    }

    #[inline(always)]
    pub(crate) fn rank_in_node(self, node: &Node, head: i64) -> usize {
        match self {
            Simd::Portable => portable::rank_in_node(node, head),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `HasAvx2` proves AVX2 and the bit instructions.
            Simd::Avx2(_) => unsafe { avx2::rank_in_node(node, head) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            // SAFETY: `HasNeon` proves NEON.
            Simd::Neon(_) => unsafe { neon::rank_in_node(node, head) },
        }
    }
}

/// Returns a bit for each lane that equals `byte` in the bits of `mask`.
#[inline]
pub(crate) fn match_lanes(lanes: &Lanes, mask: u8, byte: u8) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(braiddb_portable)))]
    return sse2::match_lanes(lanes, mask, byte);
    #[cfg(all(target_arch = "aarch64", target_endian = "little", not(braiddb_portable)))]
    // SAFETY: NEON is part of 64-bit ARM.
    return unsafe { neon::match_lanes(lanes, mask, byte) };
    #[cfg(not(any(
        all(target_arch = "x86_64", not(braiddb_portable)),
        all(target_arch = "aarch64", target_endian = "little", not(braiddb_portable))
    )))]
    return portable::match_lanes(lanes, mask, byte);
}

/// Returns two bits for each word that equals `want` in the bits of `mask`.
#[inline(always)]
pub(crate) fn match_words_twice(words: &Words, mask: u32, want: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(braiddb_portable)))]
    return sse2::match_words_twice(words, mask, want);
    #[cfg(not(all(target_arch = "x86_64", not(braiddb_portable))))]
    return portable::match_words_twice(words, mask, want);
}

#[inline]
pub(crate) fn lanes_at_most(lanes: &Lanes, byte: u8) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(braiddb_portable)))]
    return sse2::lanes_at_most(lanes, byte);
    #[cfg(all(target_arch = "aarch64", target_endian = "little", not(braiddb_portable)))]
    // SAFETY: NEON is part of 64-bit ARM.
    return unsafe { neon::lanes_at_most(lanes, byte) };
    #[cfg(not(any(
        all(target_arch = "x86_64", not(braiddb_portable)),
        all(target_arch = "aarch64", target_endian = "little", not(braiddb_portable))
    )))]
    return portable::lanes_at_most(lanes, byte);
}

#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(braiddb_portable), not(test)),
    allow(dead_code, reason = "some have a baseline twin")
)]
mod portable {
    use super::{Lanes, Node, Window, Words};

    pub(super) fn blind_candidate(differences: &Lanes, window: &Window) -> usize {
        let mut candidate = 0;
        let mut threshold = 255;
        for (lane, &difference) in differences.iter().enumerate().skip(1) {
            if threshold <= difference {
                continue;
            }
            let byte = window[usize::from(difference / 64)] >> (difference / 8 % 8 * 8);
            let bit = byte << (difference % 8) & 0x80;
            if bit != 0 {
                candidate = lane;
                threshold = 255;
            } else {
                threshold = difference;
            }
        }
        candidate
    }

    pub(super) fn rank_in_node(node: &Node, head: i64) -> usize {
        node.0.iter().map(|&h| usize::from(h <= head)).sum()
    }

    pub(super) fn match_words(words: &Words, mask: u32, want: u32) -> u32 {
        words.iter().rev().fold(0, |bits, &word| bits << 1 | u32::from(word & mask == want))
    }

    #[inline(always)]
    pub(super) fn match_words_twice(words: &Words, mask: u32, want: u32) -> u32 {
        words.iter().rev().fold(0, |bits, &word| bits << 2 | (u32::from(word & mask == want) * 0b11))
    }

    pub(super) fn match_lanes(lanes: &Lanes, mask: u8, byte: u8) -> u32 {
        lanes.iter().rev().fold(0, |bits, &lane| bits << 1 | u32::from(lane & mask == byte))
    }

    pub(super) fn lanes_at_most(lanes: &Lanes, byte: u8) -> u32 {
        lanes.iter().rev().fold(0, |bits, &lane| bits << 1 | u32::from(lane <= byte))
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use super::{Lanes, Words};
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8,
        _mm_packs_epi32, _mm_set1_epi8, _mm_set1_epi32,
    };

    #[inline(always)]
    pub(super) fn match_words_twice(words: &Words, mask: u32, want: u32) -> u32 {
        let half = |first: usize| {
            let at = words[first..first + 8].as_ptr().cast::<__m128i>();
            // SAFETY: SSE2 is part of x86-64, and eight words are two vectors of four.
            unsafe {
                let (mask, want) = (_mm_set1_epi32(mask.cast_signed()), _mm_set1_epi32(want.cast_signed()));
                let low = _mm_cmpeq_epi32(_mm_and_si128(_mm_loadu_si128(at), mask), want);
                let high = _mm_cmpeq_epi32(_mm_and_si128(_mm_loadu_si128(at.add(1)), mask), want);
                _mm_movemask_epi8(_mm_packs_epi32(low, high)) as u32 & 0xffff
            }
        };
        half(0) | half(8) << 16
    }

    #[inline]
    fn load(lanes: &Lanes) -> [__m128i; 2] {
        let first = lanes.as_ptr().cast::<__m128i>();
        // SAFETY: the 32 bytes of `lanes` hold two unaligned vectors of 16 bytes.
        unsafe { [_mm_loadu_si128(first), _mm_loadu_si128(first.add(1))] }
    }

    #[inline]
    fn gather([low, high]: [__m128i; 2]) -> u32 {
        // SAFETY: SSE2 is part of x86-64.
        let (low, high) = unsafe { (_mm_movemask_epi8(low), _mm_movemask_epi8(high)) };
        low as u32 & 0xffff | (high as u32) << 16
    }

    #[inline]
    pub(super) fn match_lanes(lanes: &Lanes, mask: u8, byte: u8) -> u32 {
        gather(load(lanes).map(|v| {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { _mm_cmpeq_epi8(_mm_and_si128(v, _mm_set1_epi8(mask as i8)), _mm_set1_epi8(byte as i8)) }
        }))
    }

    #[inline]
    pub(super) fn lanes_at_most(lanes: &Lanes, byte: u8) -> u32 {
        gather(load(lanes).map(|v| {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(byte as i8)), v) }
        }))
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{HasAvx2, Lanes, Node, Simd, Task, Window, Words};
    use std::arch::x86_64::{
        __m256i, _mm256_alignr_epi8, _mm256_and_si256, _mm256_blendv_epi8, _mm256_castsi256_ps, _mm256_cmpeq_epi8,
        _mm256_cmpeq_epi32, _mm256_cmpgt_epi64, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8,
        _mm256_movemask_ps, _mm256_or_si256, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permute2x128_si256,
        _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi8, _mm256_setr_epi64x,
        _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
    };

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: the 32 bytes hold one unaligned vector.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// Moves the vector up by `$n` lanes (1 to 15); 255 fills the free lanes.
    macro_rules! shift_up {
        ($v:expr, $n:literal) => {{
            let v = $v;
            // The low half of `below` is all ones, the high half is the low half of v.
            let below = _mm256_permute2x128_si256::<0x02>(v, _mm256_set1_epi8(-1));
            _mm256_alignr_epi8::<{ 16 - $n }>(v, below)
        }};
    }

    macro_rules! scan_step {
        ($a:ident, $c:ident, $a1:expr, $c1:expr) => {{
            let (a1, c1) = ($a1, $c1);
            // c' = if c1 <= a2 { c1 } else { c2 }; a' = min(a1, a2)
            let keep = _mm256_cmpeq_epi8(_mm256_min_epu8(c1, $a), c1);
            $c = _mm256_blendv_epi8($c, c1, keep);
            $a = _mm256_min_epu8(a1, $a);
        }};
    }

    #[inline]
    #[target_feature(enable = "avx2,lzcnt")]
    pub(super) fn blind_candidate(differences: &Lanes, window: &Window) -> usize {
        let ones = _mm256_set1_epi8(-1);
        let differences = {
            let lane_0 = _mm256_setr_epi64x(0xff, 0, 0, 0);
            _mm256_or_si256(load(differences), lane_0)
        };
        // The query's byte of each lane: index = difference / 8, from two tables of 16 bytes.
        let index = _mm256_and_si256(_mm256_srli_epi16::<3>(differences), _mm256_set1_epi8(0x1f));
        let [w0, w1, w2, w3] = window.map(u64::cast_signed);
        let query = _mm256_setr_epi64x(w0, w1, w2, w3);
        let low = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x00>(query, query), index);
        let high = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x11>(query, query), index);
        // Bit 4 of the index, moved to the top of its byte, chooses the table.
        let byte = _mm256_blendv_epi8(low, high, _mm256_slli_epi16::<3>(index));
        let bit_of = _mm256_setr_epi8(
            -128, 64, 32, 16, 8, 4, 2, 1, -128, 64, 32, 16, 8, 4, 2, 1, -128, 64, 32, 16, 8, 4, 2, 1, -128, 64, 32, 16,
            8, 4, 2, 1,
        );
        let bit = _mm256_shuffle_epi8(bit_of, _mm256_and_si256(differences, _mm256_set1_epi8(7)));
        let clear = _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), _mm256_setzero_si256());
        let mut a = differences;
        // Where the bit is set, 255; where it is clear, the difference itself.
        let mut c = _mm256_or_si256(differences, _mm256_cmpeq_epi8(clear, _mm256_setzero_si256()));
        scan_step!(a, c, shift_up!(a, 1), shift_up!(c, 1));
        scan_step!(a, c, shift_up!(a, 2), shift_up!(c, 2));
        scan_step!(a, c, shift_up!(a, 4), shift_up!(c, 4));
        scan_step!(a, c, shift_up!(a, 8), shift_up!(c, 8));
        // The last step, by 16 lanes, moves one half onto the other.
        let a1 = _mm256_permute2x128_si256::<0x02>(a, ones);
        let c1 = _mm256_permute2x128_si256::<0x02>(c, ones);
        let keep = _mm256_cmpeq_epi8(_mm256_min_epu8(c1, a), c1);
        c = _mm256_blendv_epi8(c, c1, keep);
        let _ = a1;
        let taken = _mm256_movemask_epi8(_mm256_cmpeq_epi8(c, ones)) as u32;
        let same_key = _mm256_movemask_epi8(_mm256_cmpeq_epi8(differences, ones)) as u32;
        31 - (taken & !same_key | 1).leading_zeros() as usize
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn run<T: Task>(has: HasAvx2, task: T) -> T::Output {
        task.run(Simd::Avx2(has))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn match_words(words: &Words, mask: u32, want: u32) -> u32 {
        let (mask, want) = (_mm256_set1_epi32(mask.cast_signed()), _mm256_set1_epi32(want.cast_signed()));
        let [low, high] = [0, 8].map(|first| {
            // SAFETY: sixteen words are two vectors of eight.
            let half = unsafe { _mm256_loadu_si256(words.as_ptr().add(first).cast()) };
            _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(half, mask), want))) as u32
        });
        low | high << 8
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn rank_in_node(node: &Node, head: i64) -> usize {
        let head = _mm256_set1_epi64x(head);
        let greater: [__m256i; 4] = std::array::from_fn(|quarter| {
            // SAFETY: a node is 16 numbers: four vectors of four.
            _mm256_cmpgt_epi64(unsafe { _mm256_loadu_si256(node.0.as_ptr().add(quarter * 4).cast()) }, head)
        });
        // Each 64-bit result shrinks to two bytes.
        let halves = [_mm256_packs_epi32(greater[0], greater[1]), _mm256_packs_epi32(greater[2], greater[3])];
        let greater = _mm256_movemask_epi8(_mm256_packs_epi16(halves[0], halves[1])).count_ones() as usize / 2;
        node.0.len() - greater
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn lanes(state: &mut u64, from: u8) -> Lanes {
        std::array::from_fn(|_| random(state) as u8 | from)
    }

    /// Random bytes: implementations must also agree on damaged segments.
    #[test]
    fn simd_and_portable_on_any_bytes_agree() {
        let simd = Simd::detect();
        let state = &mut 1;
        for round in 0..20_000u32 {
            let mut differences = lanes(state, if round % 3 == 0 { 0x80 } else { 0 });
            if round % 2 == 0 {
                for difference in &mut differences {
                    *difference = if random(state).is_multiple_of(4) { 255 } else { *difference % 20 };
                }
            }
            let window = std::array::from_fn(|_| random(state));
            assert_eq!(
                simd.blind_candidate(&differences, &window),
                portable::blind_candidate(&differences, &window),
                "{differences:?} {window:?}"
            );
            let byte = differences[5];
            assert_eq!(
                match_lanes(&differences, 0x1f, byte & 0x1f),
                portable::match_lanes(&differences, 0x1f, byte & 0x1f)
            );
            assert_eq!(match_lanes(&differences, 0xff, byte), portable::match_lanes(&differences, 0xff, byte));
            assert_eq!(lanes_at_most(&differences, byte), portable::lanes_at_most(&differences, byte));
        }
    }

    #[test]
    fn simd_and_portable_on_words_agree() {
        let simd = Simd::detect();
        let state = &mut 3;
        for round in 0..5_000 {
            let words: Words = std::array::from_fn(|_| random(state) as u32 & 0x8000_0003);
            let (mask, word) = (u32::MAX << (round % 32), words[round % 16]);
            for want in [word & mask, word, 0, random(state) as u32] {
                let once = portable::match_words(&words, mask, want);
                assert_eq!(simd.match_words(&words, mask, want), once);
                let twice: u32 = (0..16).map(|word| ((once >> word & 1) * 0b11) << (2 * word)).sum();
                assert_eq!(match_words_twice(&words, mask, want), twice);
                assert_eq!(portable::match_words_twice(&words, mask, want), twice);
            }
        }
    }

    #[test]
    fn simd_and_portable_on_anchor_nodes_agree() {
        let simd = Simd::detect();
        let state = &mut 2;
        for round in 0..5_000 {
            let mut heads: [i64; NODE_HEADS] = std::array::from_fn(|_| random(state) as i64 >> (round % 63));
            heads.sort_unstable();
            let node = Node(heads);
            for head in [heads[3], heads[15], heads[0] - 1, random(state) as i64, i64::MAX, i64::MIN] {
                assert_eq!(simd.rank_in_node(&node, head), portable::rank_in_node(&node, head));
            }
        }
    }
}
