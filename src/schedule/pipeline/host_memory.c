/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines whose devices offload activations to host memory, and the copies
 * within its limit. */
#include "schedule/pipeline/pipeline_internal.h"

#include "base/fail.h"
#include "base/format_units.h"
#include "base/integer_math.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

lh_status lhi_fail_memory_limit(const lh_pipeline *pipeline, uint32_t device,
                                int64_t need, lh_error *err)
{
    const char *unit = lh_pipeline_memory_unit(pipeline);
    const int64_t limit = lh_pipeline_memory_limit(pipeline, device);
    char needed[LHI_FORMAT_BYTES_SIZE], there[LHI_FORMAT_BYTES_SIZE];
    if (strcmp(unit, "bytes") == 0)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "device %" PRIu32 " needs memory %s, its limit is %s",
                        device, lhi_format_bytes(need, needed),
                        lhi_format_bytes(limit, there));
    return lhi_fail(err, LH_EINFEASIBLE,
                    "device %" PRIu32 " needs memory %" PRId64 "%s%s, its "
                    "limit is %" PRId64,
                    device, need, *unit ? " " : "", unit, limit);
}

/* Checks that each device can hold its chunks' static memory plus the largest
 * memory that one pass takes. `held`: zeroed scratch, one amount per device. */
static lh_status check_devices(const lh_pipeline *p, int64_t *held,
                               lh_error *err)
{
    for (uint32_t i = 0; i < p->n_chunks; i++)
        held[p->chunks[i].device] += p->chunks[i].mem_static;
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        const lh_chunk *c = &p->chunks[i];
        int64_t need =
            held[c->device] + lhi_max_int64(lhi_max_int64(c->mem_f, c->mem_d),
                                            lhi_max_int64(c->mem_w, 0));
        if (need <= p->memory_limits[c->device])
            continue;
        lh_status status = lhi_fail_memory_limit(p, c->device, need, err);
        lhi_fail_add_context(
            err, "host memory holds only activations that wait for their "
                 "backward pass");
        return status;
    }
    return LH_OK;
}

/* Builds a pipeline whose memory limits are raised by host_memory. `limits`:
 * scratch, one per device. */
static lh_status build_with_host_memory(const lh_pipeline *p,
                                        int64_t host_memory, int64_t *limits,
                                        lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(check_devices(p, limits, err));
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    for (uint32_t i = 0; i < p->n_devices; i++)
        limits[i] = host_memory > LH_NO_LIMIT - p->memory_limits[i]
                        ? LH_NO_LIMIT
                        : p->memory_limits[i] + host_memory;
    desc.memory_limits = limits;
    return lh_pipeline_make(&desc, out, err);
}

/* Stores the devices' own memory limits, those of `p`, in the pipeline `roomy`,
 * whose memory limits include host memory. */
static lh_status store_device_limits(const lh_pipeline *p, lh_pipeline *roomy,
                                     lh_error *err)
{
    roomy->device_limits = LHI_NEW(roomy->mem, int64_t, p->n_devices);
    if (!roomy->device_limits)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_devices; i++)
        roomy->device_limits[i] = lh_pipeline_device_limit(p, i);
    return LH_OK;
}

lh_status lh_pipeline_with_host(const lh_pipeline *pipeline,
                                int64_t host_memory, lh_pipeline **out,
                                lh_error *err)
{
    if (host_memory <= 0)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRId64 " of host memory: must be above 0",
                        host_memory);
    if (!pipeline->has_limits)
        return lhi_fail(err, LH_EINVAL,
                        "host memory has no effect: the pipeline has no "
                        "memory_limit");
    if (pipeline->overlap_f_b > 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "host memory cannot be combined with overlapped "
                        "passes; remove 'overlap' from the pipeline");
    lh_pipeline *roomy = NULL;
    int64_t *limits = calloc(pipeline->n_devices, sizeof *limits);
    lh_status status = limits ? build_with_host_memory(pipeline, host_memory,
                                                       limits, &roomy, err)
                              : lhi_fail_nomem(err);
    free(limits);
    if (status == LH_OK)
        status = store_device_limits(pipeline, roomy, err);
    if (status == LH_OK)
        *out = roomy;
    else
        lh_pipeline_free(roomy);
    return status;
}

lh_status lhi_pipeline_block_link(lh_pipeline *p, uint32_t link,
                                  int64_t until_ns, lh_error *err)
{
    uint32_t resource = p->link_resources[link];
    if (!p->blocked_until_ns)
        p->blocked_until_ns = LHI_NEW(p->mem, int64_t, p->n_resources);
    if (!p->blocked_until_ns)
        return lhi_fail_nomem(err);
    if (p->blocked_until_ns[resource] < until_ns)
        p->blocked_until_ns[resource] = until_ns;
    return LH_OK;
}

lh_status lhi_pipeline_rebuild(const lh_pipeline *from,
                               const lh_pipeline_desc *desc, lh_pipeline **out,
                               lh_error *err)
{
    lh_pipeline *made;
    LHI_TRY(lh_pipeline_make(desc, &made, err));
    lh_status status = lh_pipeline_has_host(from)
                           ? store_device_limits(from, made, err)
                           : LH_OK;
    for (uint32_t i = 0; from->blocked_until_ns && i < from->n_links; i++)
        if (status == LH_OK)
            status = lhi_pipeline_block_link(
                made, i, from->blocked_until_ns[from->link_resources[i]], err);
    if (status == LH_OK)
        *out = made;
    else
        lh_pipeline_free(made);
    return status;
}

lh_status lhi_pipeline_copy(const lh_pipeline *pipeline, lh_pipeline **out,
                            lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(pipeline, &desc, err));
    return lhi_pipeline_rebuild(pipeline, &desc, out, err);
}

int64_t lh_pipeline_device_limit(const lh_pipeline *pipeline, uint32_t device)
{
    return pipeline->device_limits ? pipeline->device_limits[device]
                                   : pipeline->memory_limits[device];
}

bool lh_pipeline_has_host(const lh_pipeline *pipeline)
{
    return pipeline->device_limits != NULL;
}
