//! Owner and access list of a named pipe.
//!
//! INVARIANT: pointers of the security structures point into memory that is borrowed or owned by
//! the same call.

use super::file::check;
use std::{
    io,
    os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle},
    ptr::{null_mut, read_unaligned},
};
use windows_sys::Win32::{
    Foundation::{ERROR_INSUFFICIENT_BUFFER, GENERIC_ALL},
    Security::{
        ACCESS_ALLOWED_ACE, ACL, ACL_REVISION, AddAccessAllowedAce, EqualSid, GetKernelObjectSecurity, GetLengthSid,
        GetSecurityDescriptorOwner, GetTokenInformation, InitializeAcl, InitializeSecurityDescriptor,
        OWNER_SECURITY_INFORMATION, PSID, SECURITY_ATTRIBUTES, SECURITY_DESCRIPTOR, SetSecurityDescriptorDacl,
        SetSecurityDescriptorOwner, TOKEN_QUERY, TOKEN_USER, TokenUser,
    },
    System::Threading::{GetCurrentProcess, OpenProcessToken},
};

const SECURITY_DESCRIPTOR_REVISION: u32 = 1;

/// The user of this process.
#[derive(Debug)]
pub struct User {
    /// A `TOKEN_USER`, and its identifier behind it.
    token_user: Vec<u64>,
}

impl User {
    pub fn current() -> io::Result<User> {
        let mut token = null_mut();
        // SAFETY: the pseudo-handle denotes this process; the pointer is valid for the call.
        check(unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) })?;
        // SAFETY: just opened, so not owned elsewhere.
        let token = unsafe { OwnedHandle::from_raw_handle(token) };
        let token_user = sized(|buffer, len, needed| {
            // SAFETY: `buffer` has `len` bytes.
            unsafe { GetTokenInformation(token.as_raw_handle(), TokenUser, buffer.cast(), len, needed) }
        })?;
        Ok(User { token_user })
    }

    fn sid(&self) -> PSID {
        // SAFETY: the system has filled in a `TOKEN_USER`, which `u64`s align enough.
        unsafe { read_unaligned(self.token_user.as_ptr().cast::<TOKEN_USER>()) }.User.Sid
    }

    /// Returns whether this user owns an object. Only administrators can make others owners.
    pub fn owns(&self, object: BorrowedHandle<'_>) -> io::Result<bool> {
        let mut descriptor = sized(|buffer, len, needed| {
            let (handle, what) = (object.as_raw_handle(), OWNER_SECURITY_INFORMATION);
            // SAFETY: `buffer` has `len` bytes, and the handle is open.
            unsafe { GetKernelObjectSecurity(handle, what, buffer.cast(), len, needed) }
        })?;
        let (mut owner, mut is_default) = (null_mut(), 0);
        let descriptor = descriptor.as_mut_ptr().cast();
        // SAFETY: the system has filled in a descriptor.
        check(unsafe { GetSecurityDescriptorOwner(descriptor, &raw mut owner, &raw mut is_default) })?;
        // SAFETY: both point to identifiers, in memory that lives until the end of this call.
        Ok(!owner.is_null() && unsafe { EqualSid(owner, self.sid()) } != 0)
    }

    /// Passes attributes of an object that this user owns and no other one may open.
    pub fn with_private_attributes<R>(&self, make: impl FnOnce(&SECURITY_ATTRIBUTES) -> R) -> io::Result<R> {
        // SAFETY: a user has an identifier.
        let sid_len = unsafe { GetLengthSid(self.sid()) };
        // An entry has the first four bytes of its identifier.
        let acl_len = (size_of::<ACL>() + size_of::<ACCESS_ALLOWED_ACE>()) as u32 + sid_len;
        let mut list = vec![0_u64; (acl_len as usize).div_ceil(8)];
        let list = list.as_mut_ptr().cast::<ACL>();
        let mut descriptor = SECURITY_DESCRIPTOR::default();
        let place = (&raw mut descriptor).cast();
        // SAFETY: the list has room for the entry, and outlives the descriptor.
        unsafe {
            check(InitializeAcl(list, acl_len, ACL_REVISION))?;
            check(AddAccessAllowedAce(list, ACL_REVISION, GENERIC_ALL, self.sid()))?;
            check(InitializeSecurityDescriptor(place, SECURITY_DESCRIPTOR_REVISION))?;
            check(SetSecurityDescriptorOwner(place, self.sid(), 0))?;
            check(SetSecurityDescriptorDacl(place, 1, list, 0))?;
        }
        let attributes = SECURITY_ATTRIBUTES {
            nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
            lpSecurityDescriptor: place,
            bInheritHandle: 0,
        };
        Ok(make(&attributes))
    }
}

/// Calls `fill` with a buffer of the length that it needs.
fn sized(mut fill: impl FnMut(*mut u64, u32, *mut u32) -> i32) -> io::Result<Vec<u64>> {
    let mut buffer = vec![0_u64; 16];
    loop {
        let mut needed = 0;
        let len = (buffer.len() * 8) as u32;
        match check(fill(buffer.as_mut_ptr(), len, &raw mut needed)) {
            Ok(()) => return Ok(buffer),
            Err(e) if e.raw_os_error() == Some(ERROR_INSUFFICIENT_BUFFER as i32) && needed > len => {
                buffer.resize((needed as usize).div_ceil(8), 0);
            }
            Err(e) => return Err(e),
        }
    }
}
