/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of this version's cpu device. They are the checks that it makes before
 * running a plan, applied before the search. */
#include "planner/layout/target_longhaul.h"

#include "format/job/family.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(err, ...)                                                       \
    lhi_fail(err, LH_EUNSUPPORTED, "longhaul's engine " __VA_ARGS__)

/* --- job ------------------------------------------------------------------ */

lh_status lhi_longhaul_job(const lh_job *job, lh_error *err)
{
    lh_error why = {0};
    lh_status status =
        lhi_family_check(job->model, job->training.sequence, &why);
    if (status != LH_OK)
        return lhi_fail(err, LH_EUNSUPPORTED, "%s", why.text);
    if (job->training.dispatcher == LH_DISPATCHER_ALL_GATHER)
        return REFUSE(err, "has no all-gather of tokens; use "
                           "training.dispatcher: alltoall or deepep");
    if (job->framework.overlap_f_b > 0)
        return REFUSE(err, "runs F and B one after the other; remove "
                           "framework.overlap.F+B");
    if (job->layout.mtp_chunk)
        return REFUSE(err, "runs the modules of model.mtp_layers with the "
                           "head; remove layout.mtp_chunk");
    return LH_OK;
}

/* --- degrees -------------------------------------------------------------- */

/* Checks that the tensor degree divides heads, KV heads and MLP width, and
 * leaves each rank a token and a vocabulary entry. */
static lh_status check_tensor(const lh_job *job, const lh_layout *l,
                              lh_error *err)
{
    const lh_model *m = job->model;
    const uint32_t n = l->tensor;
    if (n == 1)
        return LH_OK;
    if (m->heads % n || m->ffn % n || (m->kv_heads % n && n % m->kv_heads))
        return REFUSE(
            err,
            "divides layers into equal parts of heads, kv_heads and ffn; use a "
            "layout.tensor that divides these, or is a multiple of kv_heads, "
            "or 1");
    const uint64_t tokens =
        (uint64_t)l->micro_batch * job->training.sequence / l->context;
    if (m->vocab < n || tokens < n)
        return REFUSE(err, "requires at least one token of the microbatch and "
                           "of the vocabulary per tensor-parallel rank; use a "
                           "smaller layout.tensor");
    return LH_OK;
}

lh_status lhi_longhaul_group(const lh_job *job, const lh_layout *l,
                             lh_error *err)
{
    LHI_TRY(check_tensor(job, l, err));
    if (l->context > 1 && job->training.sequence % (2 * l->context) != 0)
        return REFUSE(err, "divides each sequence into 2 x layout.context "
                           "equal parts; use a layout.context whose double "
                           "divides training.sequence");
    return LH_OK;
}

lh_status lhi_longhaul_placed(const lh_job *job, const lh_layout *l,
                              lh_error *err)
{
    for (uint32_t dc = 0; l->site_tensors && dc < job->n_datacenters; dc++) {
        const lh_layout here = lhi_layout_in_datacenter(l, dc);
        LHI_TRY(check_tensor(job, &here, err));
    }
    return LH_OK;
}

/* --- state sharing -------------------------------------------------------- */

/* Returns how many of n replicas share state with `replica` (equal sites[]),
 * itself included; *before: how many of them have a lower number. */
static uint32_t count_same_site(const uint32_t *sites, uint32_t n,
                                uint32_t replica, uint32_t *before)
{
    uint32_t here = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i == replica)
            *before = here;
        here += sites[i] == sites[replica];
    }
    return here;
}

/* Checks that every stage has `sharers` replicas per state-sharing group and,
 * if stages share an embedding, the same groups at all stages. sites[stage *
 * data + replica]: group of a replica. */
static lh_status check_sites(const lh_job *job, const lh_layout *l,
                             const uint32_t *sites, uint32_t sharers,
                             lh_error *err)
{
    for (uint32_t s = 0; s < l->pipeline; s++)
        for (uint32_t r = 0; r < l->data; r++) {
            uint32_t first = 0, here = 0;
            count_same_site(sites, l->data, r, &first);
            if (count_same_site(sites + (size_t)s * l->data, l->data, r,
                                &here) == sharers &&
                (here == first || !lhi_needs_second_embedding(job->model)))
                continue;
            return REFUSE(
                err, "shards per datacenter only with equal numbers of "
                     "replicas in each, and with the same placement at all "
                     "stages that share embeddings (tied, or by "
                     "model.mtp_layers); use layout.sharding: full");
        }
    return LH_OK;
}

/* Checks that each datacenter has equally many ranks with the k-th part of the
 * experts. sites[stage * data + replica]: state-sharing group, a datacenter.
 * *each: the number, common to all calls; 0 before the first. */
static bool has_equal_experts(const lh_layout *l, const uint32_t *sites,
                              uint32_t k, uint32_t *each)
{
    const uint32_t ranks = l->context * l->tensor; /* ranks per replica */
    uint32_t here[LH_MAX_DATACENTERS] = {0};
    for (uint64_t i = k; i < l->data * ranks; i += lh_layout_expert_block(l))
        here[sites[i / ranks]]++;
    for (uint32_t i = 0; i < LH_MAX_DATACENTERS; i++) {
        if (here[i] && *each && here[i] != *each)
            return false;
        *each = here[i] ? here[i] : *each;
    }
    return true;
}

/* Checks that hybrid sharding works with experts in their own process groups:
 * each datacenter has equally many ranks per expert. sites[stage * data +
 * replica]: state-sharing group, a datacenter. LH_EUNSUPPORTED otherwise. */
static lh_status check_experts(const lh_job *job, const lh_layout *l,
                               const uint32_t *sites, lh_error *err)
{
    uint32_t each = 0;
    if (!job->model->experts ||
        (l->expert == 1 && lh_layout_expert_tensor(l) == l->tensor))
        return LH_OK;
    for (uint32_t s = 0; s < l->pipeline; s++)
        for (uint32_t k = 0; k < lh_layout_expert_block(l); k++)
            if (!has_equal_experts(l, sites + (size_t)s * l->data, k, &each))
                return REFUSE(err,
                              "shards experts per datacenter only if each "
                              "datacenter has the same number of ranks per "
                              "expert; use layout.sharding: full, or a "
                              "layout.expert that divides a datacenter's ranks "
                              "of a stage");
    return LH_OK;
}

lh_status lhi_longhaul_state(const lh_job *job, const lhi_config *c,
                             lh_error *err)
{
    const lh_layout *l = &c->layout;
    uint32_t before;
    if (c->zero == 0 || l->data == 1 || l->sharding <= LH_SHARDING_FULL)
        return LH_OK;
    lh_error why = {0};
    uint32_t *sites = calloc((size_t)l->pipeline * l->data, sizeof *sites);
    lh_status status = sites ? lhi_state_sites(job, l, c->zero, sites, &why)
                             : lhi_fail_nomem(err);
    if (status == LH_OK) {
        status = check_sites(job, l, sites,
                             count_same_site(sites, l->data, 0, &before), err);
        if (status == LH_OK)
            status = check_experts(job, l, sites, err);
    } else if (status == LH_EUNSUPPORTED)
        status = LH_OK; /* no such placement: reported elsewhere */
    free(sites);
    return status;
}
