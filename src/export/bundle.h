/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of lh_export_bundle(): where every rank runs, and the texts that
 * begin with it. */
#ifndef LHI_BUNDLE_H
#define LHI_BUNDLE_H

#include "export/export_own.h"

/* Ranks that one torchrun starts: consecutive ones on consecutive GPUs of one
 * host. A host has several of them where ranks that do not follow each other
 * share it. */
typedef struct lhi_launched {
    uint32_t datacenter, host; /* of this datacenter's, as they first come */
    uint32_t first_gpu;        /* of the host */
    uint32_t n_ranks;
    uint64_t first_rank;
} lhi_launched;

typedef struct lhi_launches {
    uint32_t n, room;
    lhi_launched *all; /* in the order of ranks */
    uint32_t *n_hosts; /* of each datacenter of the job */
} lhi_launches;

/* Every rank of the plan, on the GPU that it was costed on. Release with
 * lhi_launches_fini(), also after a failure. */
lh_status lhi_launches_find(const lh_plan *plan, lhi_launches *out,
                            lh_error *err);
void lhi_launches_fini(lhi_launches *launches);
/* Hosts of all datacenters before this one; of all: n_datacenters. */
uint32_t lhi_launches_hosts_before(const lh_plan *plan,
                                   const lhi_launches *launches,
                                   uint32_t datacenter);

/* "hosts-west.txt": what of the name is no letter, digit, '.', '_' or '-' is
 * '_', and then the datacenter's number parts it from others. */
void lhi_bundle_put_site(lhi_text *out, const lh_plan *plan,
                         uint32_t datacenter);

/* A datacenter's hosts, by names that stand for those to come. */
void lhi_bundle_put_hosts(lhi_text *out, const lh_plan *plan,
                          const lhi_launches *launches, uint32_t datacenter);
/* Which host starts which ranks. */
void lhi_bundle_put_nodes(lhi_text *out, const lh_plan *plan,
                          const lhi_launches *launches);

typedef struct lhi_bundle {
    const lh_plan *plan;
    const lhi_export_form *form;
    uint32_t port;
    const lhi_launches *launches;
    const char *remarks; /* lines of the export that begin with '#' */
    int64_t cost_ns;     /* what the schedule takes more in PyTorch */
} lhi_bundle;

void lhi_bundle_put_launch(lhi_text *out, const lhi_bundle *b);
void lhi_bundle_put_sbatch(lhi_text *out, const lhi_bundle *b);
void lhi_bundle_put_readme(lhi_text *out, const lhi_bundle *b);

#endif
