/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_NODELETE */
#include "dev/blas.h"

#include "base/fail.h"
#include "base/symbol.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define THREADS "OPENBLAS_NUM_THREADS"
#define CORE "OPENBLAS_CORETYPE"

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

static void *open_library(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    bool chose_threads = !getenv(THREADS), chose_core = !getenv(CORE);
    void *library = NULL;
    if (chose_threads)
        setenv(THREADS, "1", 1);
    if (chose_core && has_avx512())
        setenv(CORE, "SkylakeX", 1);
    for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (chose_threads)
        unsetenv(THREADS);
    if (chose_core)
        unsetenv(CORE);
    return library;
}

lh_status lhi_blas_load(lhi_sgemm *sgemm, lh_error *err)
{
    void *library = open_library();
    void (*set_threads)(int) = NULL;
    lhi_sgemm product = NULL;
    if (!library)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device needs OpenBLAS, which is not "
                        "installed: install Debian's libopenblas0-pthread, or "
                        "use the timed device");
    bool ok =
        lhi_find_symbol(library, "cblas_sgemm", &product) &&
        lhi_find_symbol(library, "openblas_set_num_threads", &set_threads);
    if (ok) {
        set_threads(1);
        *sgemm = product;
    }
    dlclose(library); /* it stays: RTLD_NODELETE */
    if (!ok)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "libopenblas.so.0 is not OpenBLAS: it lacks "
                        "cblas_sgemm or openblas_set_num_threads; install "
                        "Debian's libopenblas0-pthread");
    return LH_OK;
}
