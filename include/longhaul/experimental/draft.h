/* SPDX-License-Identifier: Apache-2.0 */
/* Generates a commented job file as a starting point; the user edits the values
 * that differ. Text form: docs/formats/job.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_DRAFT_H
#define LONGHAUL_EXPERIMENTAL_DRAFT_H

#include <longhaul/experimental/job.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- cloud regions -------------------------------------------------------- */

/* Returns the i-th known region's name, as "gcp:us-east4", in alphabetical
 * order; NULL after the last. Sources for all values: docs/formats/cloud.md. */
LH_API const char *lh_cloud_region_name(uint32_t i);
/* Checks whether `name` is a known cloud region, such as "gcp:us-east4". */
LH_API bool lh_cloud_has_region(const char *name);
/* Returns the one-way latency between two regions, half the measured round
 * trip, in ns; 0: equal or unknown regions. */
LH_API int64_t lh_cloud_latency_ns(const char *from, const char *to);
/* Returns a GPU preset's on-demand price in a region, in USD per GPU and
 * hour; 0: unknown. */
LH_API double lh_cloud_usd_per_gpu_hour(const char *region, const char *gpu);
/* Returns the price in USD for 10^9 bytes sent to another region, in the first
 * volume tier; 0: equal or unknown regions. */
LH_API double lh_cloud_usd_per_gb(const char *from, const char *to);

/* --- drafts --------------------------------------------------------------- */

/* One datacenter in the job draft. */
typedef struct lh_draft_site {
    const char *gpu;        /* preset name or alias */
    uint32_t nodes;         /* 0: enough for the model, see below */
    uint32_t gpus_per_node; /* 0: the usual number for this GPU */
    /* Cloud region: gives name, latencies and prices; for all sites or none.
     * NULL: none. */
    const char *region;
} lh_draft_site;

/* Options for lh_job_draft(). */
typedef struct lh_draft_options {
    size_t size;
    /* Preset name or alias, or path of a config.json; NULL: the first preset.
     */
    const char *model;
    uint32_t n_sites; /* 0: one, with h100-sxm */
    const lh_draft_site *sites;
    /* Link between each pair of sites. */
    int64_t latency_ns; /* one way; 0: LH_DRAFT_LATENCY_NS */
    double gbps; /* 10^9 bits per second, all traffic in one direction; 0:
                  * LH_DRAFT_GBPS */
    uint32_t global_batch; /* sequences; 0: LH_DRAFT_TOKENS per iteration */
    uint32_t sequence; /* tokens; 0: LH_DRAFT_SEQUENCE, or the model's learned
                        * position count */
    /* Base folder for config.json paths; NULL: rejects such paths. */
    const char *folder;
} lh_draft_options;

/* Defaults of lh_draft_options: one-way latency between sites; rate between
 * sites in Gbit/s; tokens per iteration; sequence length in tokens. */
#define LH_DRAFT_LATENCY_NS INT64_C(20000000)
#define LH_DRAFT_GBPS 3200.0
#define LH_DRAFT_TOKENS (UINT32_C(1) << 22)
#define LH_DRAFT_SEQUENCE UINT32_C(4096)

/* Generates a valid job's text (checked with lh_job_parse()): every
 * required key with its meaning and values, plus optional keys as comments that
 * can be enabled.
 *
 * If `nodes` is 0, each site gets the same power of two, such that all sites
 * together hold four times the training state (18 bytes per parameter). Nodes
 * and networks follow common configurations for the GPU (docs/formats/job.md).
 * Precision is bf16, or fp16 where the GPU supports no other.
 *
 * Release *text with lh_text_free(); `len` may be NULL. LH_EINPUT: unknown
 * model or GPU, or a number out of range; `err` names it. */
LH_API lh_status lh_job_draft(const lh_draft_options *options, char **text,
                              size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
