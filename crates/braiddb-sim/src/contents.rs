//! The bytes of a file, in copy-on-write pages.
//!
//! A clone costs one pointer per page. A page is the allocation unit of the disk: a hole takes no
//! space, a reserved page takes space and reads as zeros.
//!
//! **Invariants.** No page starts at or past the length, and the bytes of the last page past the
//! length are zeros. Pages missing from the end of the list are holes.

use std::sync::Arc;

pub(crate) const PAGE_LEN: usize = 4096;

#[derive(Clone, Debug)]
enum Page {
    Hole,
    Reserved,
    Data(Arc<[u8; PAGE_LEN]>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    len: u64,
    pages: Vec<Page>,
}

impl Contents {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("a file that fits memory")];
        self.read(&mut bytes, 0);
        bytes
    }

    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let left = self.len.saturating_sub(offset);
        let count = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let mut done = 0;
        while done < count {
            let (page, start) = place(offset + done as u64);
            let part = (PAGE_LEN - start).min(count - done);
            let target = &mut buf[done..done + part];
            match self.pages.get(page) {
                Some(Page::Data(bytes)) => target.copy_from_slice(&bytes[start..start + part]),
                _ => target.fill(0),
            }
            done += part;
        }
        count
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let (page, start) = place(offset + done as u64);
            let part = (PAGE_LEN - start).min(bytes.len() - done);
            if page >= self.pages.len() {
                self.pages.resize(page + 1, Page::Hole);
            }
            if !matches!(self.pages[page], Page::Data(_)) {
                self.pages[page] = Page::Data(Arc::new([0; PAGE_LEN]));
            }
            if let Page::Data(data) = &mut self.pages[page] {
                Arc::make_mut(data)[start..start + part].copy_from_slice(&bytes[done..done + part]);
            }
            done += part;
        }
        if done > 0 {
            self.len = self.len.max(offset + done as u64);
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let (page, start) = place(len);
            self.pages.truncate(if start == 0 { page } else { page + 1 });
            if start > 0
                && let Some(Page::Data(data)) = self.pages.get_mut(page)
            {
                Arc::make_mut(data)[start..].fill(0);
            }
        }
        self.len = len;
    }

    pub(crate) fn reserve(&mut self, len: u64) {
        let pages = pages_of(len);
        if pages > self.pages.len() {
            self.pages.resize(pages, Page::Hole);
        }
        for page in &mut self.pages[..pages] {
            if matches!(page, Page::Hole) {
                *page = Page::Reserved;
            }
        }
        self.len = self.len.max(len);
    }

    pub(crate) fn pages_allocated(&self) -> u64 {
        self.pages.iter().filter(|page| !matches!(page, Page::Hole)).count() as u64
    }

    pub(crate) fn pages_needed(&self, offset: u64, end: u64) -> u64 {
        if offset >= end {
            return 0;
        }
        let (first, last) = (place(offset).0, pages_of(end));
        let listed = self.pages.get(first..last.min(self.pages.len())).unwrap_or_default();
        let taken = listed.iter().filter(|page| !matches!(page, Page::Hole)).count();
        (last - first - taken) as u64
    }
}

fn place(offset: u64) -> (usize, usize) {
    ((offset / PAGE_LEN as u64) as usize, (offset % PAGE_LEN as u64) as usize)
}

fn pages_of(len: u64) -> usize {
    len.div_ceil(PAGE_LEN as u64) as usize
}
