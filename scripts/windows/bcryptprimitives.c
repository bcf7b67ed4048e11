/* Random bytes: the function of bcryptprimitives.dll that Rust's standard library needs and Wine 8 lacks. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG count); /* RtlGenRandom, of advapi32.dll */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count);

BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count)
{
    while (count > 0) {
        ULONG part = count < 1 << 20 ? (ULONG)count : 1 << 20;
        if (!SystemFunction036(bytes, part))
            return FALSE;
        bytes += part;
        count -= part;
    }
    return TRUE;
}
