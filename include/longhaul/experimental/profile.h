/* SPDX-License-Identifier: Apache-2.0 */
/* Measured times for forward (F), dgrad (D) and wgrad (W) passes, memory and
 * links. A job's profile overrides the cost model's estimates. Text form:
 * docs/formats/profile.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_PROFILE_H
#define LONGHAUL_EXPERIMENTAL_PROFILE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In place of a duration or size: not measured. */
#define LH_NOT_MEASURED INT64_C(-1)

/* Measured unit kinds. */
typedef enum lh_profile_kind {
    LH_PROFILE_LAYER, /* one transformer layer with a dense MLP */
    LH_PROFILE_MOE_LAYER,
    LH_PROFILE_EMBEDDING,
    LH_PROFILE_HEAD,  /* final norm, vocabulary matrix and loss */
    LH_PROFILE_CHUNK, /* everything in chunk `chunk` out of `n_chunks` */
} lh_profile_kind;

/* One measurement: a pass over one microbatch with `micro_batch` sequences of
 * `sequence` tokens each, on one of the tensor x context GPUs that share the
 * work, with `expert` GPUs sharing the experts. No recomputation unless
 * `recompute` (an lh_recompute value) is set. */
typedef struct lh_profile_entry {
    lh_profile_kind kind;
    const char *gpu; /* GPU name; NULL: not given */
    uint32_t tensor, context, expert, micro_batch, sequence;
    uint32_t recompute;
    uint32_t chunk, n_chunks, layers; /* kind chunk; `layers` 0: not given */
    /* True if times include communication between the GPUs that share the work;
     * false if they are compute only. */
    bool communication;
    int64_t f_ns, d_ns, w_ns;
    int64_t activation_bytes;  /* per GPU, from F to W; or LH_NOT_MEASURED */
    int64_t static_bytes;      /* per GPU: parameters, gradients, optimizer; or
                                * LH_NOT_MEASURED */
    const char *model;         /* matching model name in the job; NULL: any */
    bool no_sequence_parallel; /* ranks that share layers, `tensor` > 1 */
} lh_profile_entry;

/* Measured link kinds. */
typedef enum lh_profile_path {
    LH_PATH_NODE,   /* within a node */
    LH_PATH_FABRIC, /* between nodes in a datacenter */
    LH_PATH_WAN,    /* between datacenters */
} lh_profile_path;

/* Measured link: a message with n bytes takes alpha_ns + n * beta_ns_per_byte.
 */
typedef struct lh_profile_link {
    lh_profile_path path;
    const char *site;      /* node, fabric: the datacenter; NULL: all */
    const char *from, *to; /* wan: datacenters */
    int64_t alpha_ns;
    double beta_ns_per_byte;
} lh_profile_link;

/* A profile. Immutable; owns its contents. Release with lh_profile_free(). */
typedef struct lh_profile {
    const char *name;   /* used in error messages */
    const char *model;  /* measured model: free text or a preset; NULL */
    const char *source; /* method, tools and date; NULL */
    uint32_t n_entries, n_links;
    const lh_profile_entry *entries; /* in file order */
    const lh_profile_link *links;
    /* Time after the pipeline in an iteration: optimizer, reductions over
     * ranks, and everything else that runs once. 0: not measured. */
    int64_t iteration_ns;
} lh_profile;

/* Parses a profile; `name` appears in error messages. LH_EINPUT: invalid text.
 * Release with lh_profile_free(). */
LH_API lh_status lh_profile_parse(const char *text, size_t len,
                                  const char *name, lh_profile **out,
                                  lh_error *err);
/* Reads and parses a profile file. LH_EIO: it cannot be read. */
LH_API lh_status lh_profile_read(const char *path, lh_profile **out,
                                 lh_error *err);
/* Frees a profile with all memory that it owns; NULL is a no-op. */
LH_API void lh_profile_free(lh_profile *profile);

/* Formats a profile as canonical text (JSON). Parsing it gives the same
 * profile, which formats to the same text. Release *text with lh_text_free();
 * `len` may be NULL. */
LH_API lh_status lh_profile_format(const lh_profile *profile, char **text,
                                   size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
