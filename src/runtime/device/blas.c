/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_NODELETE, MAP_ANONYMOUS */
#include "runtime/device/blas.h"

#include "base/fail.h"
#include "base/symbol.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Environment variables of OpenBLAS. */
#define THREADS "OPENBLAS_NUM_THREADS"
#define CORE "OPENBLAS_CORETYPE"

/* Checks whether this machine's processor has the AVX-512 instructions that
 * OpenBLAS uses. */
static bool has_avx512(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

/* Opens the first OpenBLAS library found under its usual names. On failure
 * `reason` receives dlerror()'s text for the first name, cut to `size` bytes.
 */
static void *open_library(char *reason, size_t size)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    bool chose_threads = !getenv(THREADS), chose_core = !getenv(CORE);
    void *library = NULL;
    if (chose_threads)
        setenv(THREADS, "1", 1);
    if (chose_core && has_avx512())
        setenv(CORE, "SkylakeX", 1);
    for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        const char *why = library || i > 0 ? NULL : dlerror();
        if (why)
            snprintf(reason, size, "%s", why);
    }
    if (chose_threads)
        unsetenv(THREADS);
    if (chose_core)
        unsetenv(CORE);
    return library;
}

/* Fails with LH_EUNSUPPORTED: OpenBLAS cannot be loaded; adds the dynamic
 * loader's message `reason`. */
static lh_status fail_to_load(const char *reason, lh_error *err)
{
    bool absent = strstr(reason, "No such file") != NULL;
    if (absent)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device needs OpenBLAS, which is not "
                        "installed: install Debian's libopenblas0-pthread, or "
                        "use the timed device");
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the cpu device needs OpenBLAS, which cannot be loaded: "
                    "%.200s; if memory is short, raise the limit (ulimit -v), "
                    "or use the timed device",
                    reason);
}

/* Checks whether LHI_BLAS_BUFFER_BYTES of memory, one OpenBLAS buffer's size,
 * can be mapped now. */
static bool can_map_buffer(void)
{
    const size_t size = LHI_BLAS_BUFFER_BYTES + (1 << 20);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return false;
    munmap(map, size);
    return true;
}

/* Allocates `n` OpenBLAS buffers with `take` and frees them with `give_back`,
 * so that OpenBLAS keeps them mapped for later calls. Checks the address space
 * before each allocation, because blas_memory_alloc() retries forever when
 * mmap() fails. */
static lh_status preallocate_buffers(uint32_t n, void *(*take)(int),
                                     void (*give_back)(void *), lh_error *err)
{
    enum { MAX_BUFFERS = 500 }; /* OpenBLAS has 512 and misbehaves beyond */
    if (n > MAX_BUFFERS)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "OpenBLAS supports %d concurrent threads, but %u ranks are threads "
            "of this process: run them as processes (--transport local)",
            MAX_BUFFERS, n);
    void **taken = calloc(n ? n : 1, sizeof *taken);
    uint32_t got = 0;
    if (!taken)
        return lhi_fail_nomem(err);
    while (got < n && can_map_buffer() && (taken[got] = take(0)))
        got++;
    for (uint32_t i = 0; i < got; i++)
        give_back(taken[i]);
    free(taken);
    if (got == n)
        return LH_OK;
    return lhi_fail(
        err, LH_ENOMEM,
        "OpenBLAS maps %d MiB for each rank of a process; the limit allows %u "
        "of %u ranks: raise it (ulimit -v, ulimit -d)%s",
        LHI_BLAS_BUFFER_BYTES >> 20, got, n,
        n > 1 ? ", or run ranks as processes (--transport local)" : "");
}

lh_status lhi_blas_load(uint32_t n_callers, lhi_sgemm *sgemm, lh_error *err)
{
    char reason[256] = "no reason given";
    void *library = open_library(reason, sizeof reason);
    void (*set_threads)(int) = NULL;
    void *(*take)(int) = NULL;
    void (*give_back)(void *) = NULL;
    lhi_sgemm product = NULL;
    if (!library)
        return fail_to_load(reason, err);
    bool ok =
        lhi_find_symbol(library, "cblas_sgemm", &product) &&
        lhi_find_symbol(library, "openblas_set_num_threads", &set_threads) &&
        lhi_find_symbol(library, "blas_memory_alloc", &take) &&
        lhi_find_symbol(library, "blas_memory_free", &give_back);
    if (ok)
        set_threads(1);
    dlclose(library); /* stays loaded: RTLD_NODELETE */
    if (!ok)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "libopenblas.so.0 is not OpenBLAS: it lacks "
                        "cblas_sgemm, openblas_set_num_threads or "
                        "blas_memory_alloc; install Debian's "
                        "libopenblas0-pthread");
    LHI_TRY(preallocate_buffers(n_callers, take, give_back, err));
    *sgemm = product;
    return LH_OK;
}
