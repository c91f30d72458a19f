/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "net/ucx_calls.h"

#ifdef LHI_HAVE_UCX

#include "base/fail.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* ISO C has no conversion from an object's address to a function's; POSIX says
 * that the bytes are those. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

lh_status lhi_ucx_load(lhi_ucx_calls *call, lh_error *err)
{
    /* Stays loaded: it leaves threads' keys behind. */
    int how = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
    void *ucs = dlopen("libucs.so.0", how), *ucp = dlopen("libucp.so.0", how);
    bool all =
        ucs && ucp && find(ucs, "ucs_status_string", &call->status_string);
#define UCX_FIND(name) all = all && find(ucp, "ucp_" #name, &call->name);
    LHI_UCX_LIST(UCX_FIND)
#undef UCX_FIND
    if (!all)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "UCX cannot be loaded (package libucx0): %s",
                        dlerror());
    return LH_OK;
}

#else

typedef int nothing_here; /* ISO C wants something in a file */

#endif
