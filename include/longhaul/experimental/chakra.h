/* SPDX-License-Identifier: Apache-2.0 */
/* Replays MLCommons Chakra execution traces, one per rank: every node starts
 * when its dependencies allow (docs/formats/chakra.md).
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_CHAKRA_H
#define LONGHAUL_EXPERIMENTAL_CHAKRA_H

#include <longhaul/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A rank's file. */
typedef struct lh_chakra_file {
    const char *name; /* in messages */
    const char *data;
    size_t len;
} lh_chakra_file;

/* A rank's replay. */
typedef struct lh_chakra_rank {
    uint32_t n_nodes;
    int64_t end_ns;     /* its last node's end */
    int64_t compute_ns; /* sum over its computing nodes */
} lh_chakra_rank;

/* A replay. Release with lh_chakra_free(). */
typedef struct lh_chakra {
    int64_t total_ns; /* last node's end */
    uint32_t n_ranks;
    const lh_chakra_rank *ranks;
} lh_chakra;

/* Replays the traces of ranks 0 to n_files - 1.
 *
 * LH_EINPUT: a file is damaged; a node has operations or bytes but no duration,
 * one above 2^53 ns, the id of another node, a dependency that is not in the
 * file, or no peer; `err` gives file and node. LH_EDEADLOCK: nodes wait for
 * each other. The caller frees *out with lh_chakra_free(). */
LH_API lh_status lh_chakra_replay(const lh_chakra_file *files, uint32_t n_files,
                                  lh_chakra **out, lh_error *err);
/* Frees a replay; NULL is a no-op. */
LH_API void lh_chakra_free(lh_chakra *replay);

#ifdef __cplusplus
}
#endif
#endif
