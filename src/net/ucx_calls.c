/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "net/ucx_calls.h"

#ifdef LHI_HAVE_UCX

#include "base/fail.h"
#include "base/symbol.h"

#include <stdbool.h>
#include <string.h>

lh_status lhi_ucx_load(lhi_ucx_calls *call, lh_error *err)
{
    /* Stays loaded: it leaves threads' keys behind. */
    int how = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
    void *ucs = dlopen("libucs.so.0", how), *ucp = dlopen("libucp.so.0", how);
    bool all = ucs && ucp &&
               lhi_find_symbol(ucs, "ucs_status_string", &call->status_string);
#define UCX_FIND(name)                                                         \
    all = all && lhi_find_symbol(ucp, "ucp_" #name, &call->name);
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
