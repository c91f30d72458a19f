/* SPDX-License-Identifier: Apache-2.0 */
/* lh_export_bundle() parts: the host and GPUs of every rank, and the generated
 * files. */
#ifndef LHI_INTEROP_EXPORT_BUNDLE_H
#define LHI_INTEROP_EXPORT_BUNDLE_H

#include "interop/export/export_internal.h"

#include <longhaul/experimental/plan.h>

/* Ranks that one torchrun starts: consecutive ranks on consecutive GPUs of one
 * host. A host has several launches if its ranks are not consecutive. */
typedef struct lhi_launch {
    uint32_t datacenter, host; /* host: per datacenter, by first use */
    uint32_t first_gpu;        /* on the host */
    uint32_t n_ranks;
    uint64_t first_rank;
} lhi_launch;

/* A job's launches. */
typedef struct lhi_launches {
    uint32_t n, room;
    lhi_launch *all;   /* in rank order */
    uint32_t *n_hosts; /* per datacenter of the job */
} lhi_launches;

/* Finds for each rank the host and the GPU for which the plan computed its
 * times, as launches (consecutive ranks on one host) in rank order. Release
 * with lhi_launches_fini(), also after a failure. */
lh_status lhi_launches_compute(const lh_plan *plan, lhi_launches *out,
                               lh_error *err);
/* Frees the arrays of `launches` (consecutive ranks on one host), but not the
 * struct itself. */
void lhi_launches_fini(lhi_launches *launches);
/* Counts the hosts in use in the datacenters with an index below `datacenter`;
 * with n_datacenters, in the whole job. */
uint32_t lhi_launches_hosts_before(const lh_plan *plan,
                                   const lhi_launches *launches,
                                   uint32_t datacenter);

/* Adds a datacenter's name in a form for file names, as in "hosts-west.txt".
 * Replaces characters other than letters, digits, '.', '_' and '-' by '_', and
 * then appends the datacenter's number to keep the name unique. */
void lhi_bundle_add_site_name(lhi_text *out, const lh_plan *plan,
                              uint32_t datacenter);

/* Adds a datacenter's host file contents: a comment, and one placeholder host
 * name per line. */
void lhi_bundle_add_hosts(lhi_text *out, const lh_plan *plan,
                          const lhi_launches *launches, uint32_t datacenter);
/* Adds nodes.txt's contents: a line per launch with its host, GPUs, ranks and
 * datacenter. */
void lhi_bundle_add_nodes(lhi_text *out, const lh_plan *plan,
                          const lhi_launches *launches);

/* Inputs for the generated files. */
typedef struct lhi_bundle {
    const lh_plan *plan;
    lh_export_target target;
    const lhi_export_form *form;
    uint32_t port;
    const lhi_launches *launches;
    const char *remarks; /* '#' lines in the exported file */
    int64_t cost_ns;     /* the schedule's extra time in PyTorch */
    bool has_plan;       /* longhaul.megatron runs the passes of plan.json */
} lhi_bundle;

/* Adds the contents of launch.sh, which starts the ranks of the host that it
 * runs on. */
void lhi_bundle_add_launch_script(lhi_text *out, const lhi_bundle *b);
/* Adds the contents of job.sbatch, which writes the host files and starts
 * launch.sh on all nodes with Slurm. */
void lhi_bundle_add_sbatch_script(lhi_text *out, const lhi_bundle *b);
/* Adds README.md's contents: files, ranks, prediction, checks, and export notes
 * if there are any. */
void lhi_bundle_add_readme(lhi_text *out, const lhi_bundle *b);

#endif
