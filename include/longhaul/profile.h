/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured: times of forward (F), input gradient (D) and weight
 * gradient (W), memory, links. Where a job has a profile it wins over the cost
 * model's estimates. Text form: docs/formats/profile.md. */
#ifndef LONGHAUL_PROFILE_H
#define LONGHAUL_PROFILE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_NOT_MEASURED INT64_C(-1)

typedef enum lh_profile_kind {
    LH_PROFILE_LAYER, /* one transformer layer with a dense MLP */
    LH_PROFILE_MOE_LAYER,
    LH_PROFILE_EMBEDDING,
    LH_PROFILE_HEAD,  /* final norm, vocabulary matrix and loss */
    LH_PROFILE_CHUNK, /* all that chunk `chunk` of `of` holds */
} lh_profile_kind;

/* One measurement: a pass over one microbatch of `micro_batch` sequences of
 * `sequence` tokens on one GPU out of tensor x context that share the work, and
 * `expert` that share the experts. Nothing recomputed, unless `recompute` (as lh_recompute) says so. */
typedef struct lh_profile_entry {
    lh_profile_kind kind;
    const char *gpu; /* name of the GPU; NULL: not said */
    uint32_t tensor, context, expert, micro_batch, sequence;
    uint32_t recompute;
    uint32_t chunk, of, layers; /* kind chunk; `layers` 0: not said */
    /* The times include the communication between the GPUs that share the
     * work; otherwise they are arithmetic alone. */
    bool communication;
    int64_t f_ns, d_ns, w_ns;
    int64_t activation_bytes; /* per GPU, from F until W; LH_NOT_MEASURED */
    int64_t static_bytes;     /* per GPU: parameters, gradients, optimizer;
                                 LH_NOT_MEASURED */
    const char *model; /* name of the job's model that it is for; NULL: any */
    bool no_sequence_parallel; /* of ranks that share layers, `tensor` above 1 */
} lh_profile_entry;

typedef enum lh_profile_path {
    LH_PATH_NODE,   /* inside a node */
    LH_PATH_FABRIC, /* between nodes of a datacenter */
    LH_PATH_WAN,    /* from one datacenter to another */
} lh_profile_path;

/* A message of n bytes takes alpha_ns + n * beta_ns_per_byte. */
typedef struct lh_profile_link {
    lh_profile_path path;
    const char *site;      /* node, fabric: which datacenter; NULL: all */
    const char *from, *to; /* wan: datacenters */
    int64_t alpha_ns;
    double beta_ns_per_byte;
} lh_profile_link;

/* Immutable; the profile owns everything it points to. */
typedef struct lh_profile {
    const char *name;   /* as messages call it */
    const char *model;  /* what was measured: free text or a preset; NULL */
    const char *source; /* how, with what, when; NULL */
    uint32_t n_entries, n_links;
    const lh_profile_entry *entries; /* in file order */
    const lh_profile_link *links;
    /* What follows the pipeline in an iteration: optimizer, sums over ranks,
     * all that comes once. 0: not measured. */
    int64_t iteration_ns;
} lh_profile;

LH_API lh_status lh_profile_parse(const char *text, size_t len,
                                  const char *name, lh_profile **out,
                                  lh_error *err);
LH_API lh_status lh_profile_read(const char *path, lh_profile **out,
                                 lh_error *err);
LH_API void lh_profile_free(lh_profile *profile); /* NULL is fine */

/* The canonical text (JSON), which reads back to the same profile and the same
 * text. Release *text with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_profile_format(const lh_profile *profile, char **text,
                                   size_t *len, lh_error *err);

/* The entry measured under exactly the conditions of `like`: kind, tensor,
 * context, expert, micro_batch, sequence, recompute, sequence parallelism, for
 * a chunk also chunk and of; on the GPU named `like->gpu` or one that is not
 * named, and of the model `like->model` or one that is not named. NULL: none. */
LH_API const lh_profile_entry *lh_profile_find(const lh_profile *profile,
                                               const lh_profile_entry *like);

#ifdef __cplusplus
}
#endif
#endif
