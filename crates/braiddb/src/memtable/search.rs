//! Search in the key heads of one node.
//!
//! A head is eight bytes of a key as a big-endian number with the top bit flipped, so that signed
//! comparison, the only one in AVX2, orders heads as bytes. The heads of a node are unsorted: the
//! target is compared with all of them, and the count of smaller heads is the rank.
//!
//! Memory model: heads below `count` were written before the count was published and never change,
//! so plain vector loads may read them. Other heads may be written concurrently; the load masks
//! their vector lanes out and does not access them.

use std::sync::atomic::{AtomicI64, Ordering};

pub(super) const NODE_KEYS: usize = 32;

pub(super) type Heads = [AtomicI64; NODE_KEYS];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matches {
    pub less: u32,
    pub equal: u32,
}

#[inline]
pub(super) fn head(key: &[u8], skip: usize) -> i64 {
    let rest = key.get(skip..).unwrap_or_default();
    let bytes = match rest.first_chunk::<8>() {
        Some(bytes) => *bytes,
        None => {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(rest) {
                *to = *from;
            }
            bytes
        }
    };
    i64::from_be_bytes(bytes) ^ i64::MIN
}

/// The first `count` heads were published to this thread.
#[inline]
pub(super) fn search(heads: &Heads, count: usize, target: i64) -> Matches {
    #[cfg(all(target_arch = "x86_64", not(miri), not(braiddb_portable)))]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512; the lanes below `count` are never written again.
        return unsafe { avx512(heads, count, target) };
    }
    #[cfg(all(target_arch = "x86_64", not(miri), not(braiddb_portable)))]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the lanes below `count` are never written again.
        return unsafe { avx2(heads, count, target) };
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri), not(braiddb_portable)))]
    if std::arch::is_aarch64_feature_detected!("neon") {
        // SAFETY: the processor has NEON; the lanes below `count` are never written again.
        return unsafe { neon(heads, count, target) };
    }
    portable(heads, count, target)
}

pub(super) fn portable(heads: &Heads, count: usize, target: i64) -> Matches {
    let mut matches = Matches { less: 0, equal: 0 };
    for (slot, head) in heads[..count].iter().enumerate() {
        let head = head.load(Ordering::Relaxed);
        matches.less += u32::from(head < target);
        matches.equal |= u32::from(head == target) << slot;
    }
    matches
}

/// [`portable`], eight heads at a time.
///
/// # Safety
/// The processor has AVX-512F, and no thread writes the heads below `count`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn avx512(heads: &Heads, count: usize, target: i64) -> Matches {
    use std::arch::x86_64::*;
    assert!(count <= NODE_KEYS);
    let published = ((1u64 << count) - 1) as u32;
    let wanted = _mm512_set1_epi64(target);
    let (mut less, mut equal) = (0, 0);
    for vector in 0..NODE_KEYS / 8 {
        let first = 8 * vector;
        let lanes = (published >> first) as __mmask8;
        // SAFETY: within the array; lanes at or above `count` are masked out and not accessed.
        let found = unsafe { _mm512_maskz_loadu_epi64(lanes, heads.as_ptr().add(first).cast()) };
        less |= u32::from(_mm512_mask_cmplt_epi64_mask(lanes, found, wanted)) << first;
        equal |= u32::from(_mm512_mask_cmpeq_epi64_mask(lanes, found, wanted)) << first;
    }
    Matches { less: less.count_ones(), equal }
}

/// Masks: from offset `NODE_KEYS - count` on, the first `count` have all bits set.
#[cfg(target_arch = "x86_64")]
static LANES: [i64; 2 * NODE_KEYS] = {
    let mut lanes = [0; 2 * NODE_KEYS];
    let mut lane = 0;
    while lane < NODE_KEYS {
        lanes[lane] = -1;
        lane += 1;
    }
    lanes
};

/// # Safety
/// The processor has AVX2, and no thread writes the heads below `count`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(heads: &Heads, count: usize, target: i64) -> Matches {
    use std::arch::x86_64::*;
    assert!(count <= NODE_KEYS);
    let wanted = _mm256_set1_epi64x(target);
    let mut less = _mm256_setzero_si256();
    let mut equal = 0;
    for vector in 0..NODE_KEYS / 4 {
        let first = 4 * vector;
        // SAFETY: `NODE_KEYS - count + first + 4 <= 2 * NODE_KEYS`.
        let lanes = unsafe { _mm256_loadu_si256(LANES.as_ptr().add(NODE_KEYS - count + first).cast()) };
        // SAFETY: within the array; lanes at or above `count` are masked out and not accessed.
        let found = unsafe { _mm256_maskload_epi64(heads.as_ptr().add(first).cast(), lanes) };
        less = _mm256_sub_epi64(less, _mm256_and_si256(lanes, _mm256_cmpgt_epi64(wanted, found)));
        let same = _mm256_and_si256(lanes, _mm256_cmpeq_epi64(wanted, found));
        equal |= (_mm256_movemask_pd(_mm256_castsi256_pd(same)) as u32) << first;
    }
    let halves = _mm_add_epi64(_mm256_castsi256_si128(less), _mm256_extracti128_si256::<1>(less));
    let sum = _mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves));
    Matches { less: _mm_cvtsi128_si64(sum) as u32, equal }
}

/// # Safety
/// The processor has NEON, and no thread writes the heads below `count`.
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[target_feature(enable = "neon")]
pub(super) unsafe fn neon(heads: &Heads, count: usize, target: i64) -> Matches {
    use std::arch::aarch64::*;
    assert!(count <= NODE_KEYS);
    let wanted = vdupq_n_s64(target);
    let (mut less, mut equal) = (vdupq_n_s64(0), vdupq_n_u64(0));
    let mut slots = vcombine_u64(vcreate_u64(1), vcreate_u64(2));
    for pair in 0..count / 2 {
        // SAFETY: both lanes are below `count`.
        let found = unsafe { vld1q_s64(heads.as_ptr().add(2 * pair).cast()) };
        less = vsubq_s64(less, vreinterpretq_s64_u64(vcgtq_s64(wanted, found)));
        equal = vorrq_u64(equal, vandq_u64(slots, vceqq_s64(wanted, found)));
        slots = vshlq_n_u64::<2>(slots);
    }
    let mut matches = Matches { less: vaddvq_s64(less) as u32, equal: vaddvq_u64(equal) as u32 };
    // The last of an odd number is loaded alone: its neighbour may be written concurrently.
    if let Some(last) = heads[..count].last().filter(|_| count % 2 == 1) {
        let last = last.load(Ordering::Relaxed);
        matches.less += u32::from(last < target);
        matches.equal |= u32::from(last == target) << (count - 1);
    }
    matches
}

#[inline]
pub(super) fn prefetch(pointer: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no visible effect, whatever the address; every x86-64 has SSE.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = pointer;
}
