/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/ucx_calls.h"

#ifdef LHI_HAVE_UCX

#include "base/fail.h"
#include "base/symbol.h"

#include <stdlib.h>

lh_status lhi_ucx_load(lhi_ucx_calls *call, lh_error *err)
{
    /* Never unloaded, because it leaves thread-specific keys behind. */
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

lh_status lhi_ucx_check_status(const lhi_ucx_calls *call, ucs_status_t status,
                               const char *what, lh_error *err)
{
    if (status == UCS_OK)
        return LH_OK;
    return lhi_fail(err, LH_EIO, "UCX cannot %s: %s", what,
                    call->status_string(status));
}

/* Reads UCX's configuration and sets longhaul's defaults; `loopback`: this
 * host only. */
static lh_status configure(const lhi_ucx_calls *call, bool loopback,
                           ucp_config_t **out, lh_error *err)
{
    ucp_config_t *config = NULL;
    LHI_TRY(lhi_ucx_check_status(call, call->config_read(NULL, NULL, &config),
                                 "read its configuration", err));
    lh_status status = LH_OK;
    /* The user's environment has precedence. */
    if (loopback && !getenv("UCX_NET_DEVICES"))
        status = lhi_ucx_check_status(
            call, call->config_modify(config, "NET_DEVICES", "lo"),
            "be restricted to loopback", err);
    /* UCX 1.13 aborts if it polls two events of one peer over TCP at a time and
     * the first, the peer's end, closes the connection of the second. A version
     * without this setting polls as it does by default. */
    if (status == LH_OK && !getenv("UCX_TCP_MAX_POLL"))
        (void)call->config_modify(config, "MAX_POLL", "1");
    /* Receives are posted before the bytes are sent, so UCX needs no
     * rendezvous. */
    if (status == LH_OK && !loopback && !getenv("UCX_RNDV_THRESH"))
        status = lhi_ucx_check_status(
            call, call->config_modify(config, "RNDV_THRESH", "inf"),
            "disable its rendezvous protocol", err);
    if (status == LH_OK)
        *out = config;
    else
        call->config_release(config);
    return status;
}

lh_status lhi_ucx_make_worker(const lhi_ucx_calls *call, bool loopback,
                              uint32_t n_peers, ucp_context_h *context,
                              ucp_worker_h *worker, int *efd, lh_error *err)
{
    ucp_config_t *config = NULL;
    LHI_TRY(configure(call, loopback, &config, err));
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = n_peers};
    ucs_status_t got = call->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params,
                                          config, context);
    call->config_release(config);
    LHI_TRY(lhi_ucx_check_status(call, got, "start", err));
    ucp_worker_params_t how = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                               .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    LHI_TRY(lhi_ucx_check_status(call,
                                 call->worker_create(*context, &how, worker),
                                 "create a worker", err));
    return lhi_ucx_check_status(call, call->worker_get_efd(*worker, efd),
                                "wait for events", err);
}

#else

typedef int nothing_here; /* ISO C forbids an empty file */

#endif
