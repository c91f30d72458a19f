/* SPDX-License-Identifier: Apache-2.0 */
/* A job file to begin with: commented text, of which the owner changes what is
 * different. Text form: docs/formats/job.md. */
#ifndef LONGHAUL_DRAFT_H
#define LONGHAUL_DRAFT_H

#include <longhaul/job.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A datacenter of it. */
typedef struct lh_draft_site {
    const char *gpu;        /* a preset's name, or what stands for it */
    uint32_t nodes;         /* 0: enough for the model, see below */
    uint32_t gpus_per_node; /* 0: as this GPU is sold */
} lh_draft_site;

typedef struct lh_draft_options {
    size_t size;
    /* A preset's name, or what stands for it, or the path of a config.json;
     * NULL: the first preset. */
    const char *model;
    uint32_t n_sites; /* 0: one, of h100-sxm */
    const lh_draft_site *sites;
    /* Of the link between each two sites. */
    int64_t latency_ns; /* one way; 0: LH_DRAFT_LATENCY_NS */
    double gbps; /* 10^9 bits per second, all traffic of one direction; 0:
                    LH_DRAFT_GBPS */
    uint32_t global_batch; /* sequences; 0: LH_DRAFT_TOKENS in an iteration */
    uint32_t sequence; /* tokens; 0: LH_DRAFT_SEQUENCE, or as many positions as
                          the model has learned */
    /* Where a config.json's path begins; NULL: such paths are refused. */
    const char *folder;
} lh_draft_options;

#define LH_DRAFT_LATENCY_NS INT64_C(20000000)
#define LH_DRAFT_GBPS 3200.0
#define LH_DRAFT_TOKENS (UINT32_C(1) << 22)
#define LH_DRAFT_SEQUENCE UINT32_C(4096)

/* The text of a job, which lh_job_parse() has read: every key that such a job
 * needs, what it means and takes, and, as comments that may be uncovered, some
 * of those it may have. Where `nodes` is 0, a site has as many, a power of two,
 * that the sites together hold four times the training state of 18 bytes for
 * each parameter. Nodes and their networks are those that the GPU is usually
 * sold with (docs/formats/job.md); training is in bf16, or in fp16 where a GPU
 * knows no other.
 *
 * Release *text with lh_text_free(); `len` may be NULL. LH_EINPUT: no such
 * model or GPU, or a number that no job may have; `err` says which. */
LH_API lh_status lh_job_draft(const lh_draft_options *options, char **text,
                              size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
