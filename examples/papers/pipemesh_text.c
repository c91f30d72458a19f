/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the claims of PipeMesh's text about table IV. */
#include "pipemesh_cells.h"
#include "pipemesh_more.h"

#include <math.h>

/* Adds the sizes of activations in section VI's text. */
static void claim_activations(void)
{
    static const double per_pass[] = {2.66, 1.86};
    const pipemesh_model *falcon = &pipemesh_models[3];
    const double mib = pipemesh_sbh(falcon) / (1 << 20);
    pipemesh_claim("section VI", falcon->name,
                   "activations of a layer, Megatron",
                   pipemesh_whole_layer(falcon) * mib, 79.5, 1, " MiB",
                   SCORE_GIVEN, "53/2 sbh is the paper's formula");
    pipemesh_claim("section VI", falcon->name,
                   "activations of a layer, PipeMesh", falcon->stored * mib,
                   43.5, 1, " MiB", SCORE_GIVEN,
                   "the paper's formula and its list of recomputed operations");
    for (int k = 0; k < 2; k++) {
        const pipemesh_model *m = &pipemesh_models[2 + k];
        pipemesh_claim("section VI", m->name, "activations of a microbatch",
                       m->layers / m->P * pipemesh_whole_layer(m) *
                           pipemesh_sbh(m) / GIB,
                       per_pass[k], 2, " GiB", SCORE_GIVEN,
                       "the paper's formula and layers per stage");
    }
}

/* Adds section VI's text on table IV: overlap on A100, memory of GPT-3 on
 * V100. */
static void claim_overlap_and_memory(void)
{
    const pipemesh_model *a100 = &pipemesh_models[0],
                         *v100 = &pipemesh_models[1];
    static const double overlapped[] = {82.5, 31.3};
    for (uint32_t k = 0; k < 2; k++) {
        const pipemesh_published *row = &a100->rows[k];
        double all_ms = 2 * row->M * pipemesh_chunk_comm_ns(a100, row->M) / MS;
        pipemesh_claim("section VI", a100->name,
                       k ? "Megatron hides of DP communication"
                         : "PipeMesh hides of DP communication",
                       100 * (1 - pipemesh_derive(a100, k).dp_ms / all_ms),
                       overlapped[k], 1, " %",
                       k ? SCORE_INFORMATIVE : SCORE_GIVEN,
                       k ? "the link's share cancels only in part"
                         : "1 - 1/M: all but the first chunk's");
    }
    pipemesh_claim("section VI", a100->name,
                   "PipeMesh less than Megatron, critical DP",
                   100 * (1 - pipemesh_derive(a100, 0).dp_ms /
                                  pipemesh_derive(a100, 1).dp_ms),
                   75.3, 1, " %", SCORE_VARIANT,
                   "from two cells of table IV, one of them fitted");
    const pipemesh_columns own = pipemesh_derive(v100, 0),
                           depth = pipemesh_derive(v100, 1);
    pipemesh_claim("section VI", v100->name,
                   "PipeMesh more than Megatron, activations", own.a - depth.a,
                   1.5, 1, " GiB", SCORE_VARIANT,
                   "difference of two cells of table IV");
    pipemesh_claim(
        "section VI", v100->name, "PipeMesh less than Megatron, model states",
        depth.g + depth.p - own.g - own.p, 1.8, 1, " GiB", SCORE_VARIANT,
        "as above; the formula's M_p of elastic plans is too large");
}

void pipemesh_claim_text(void)
{
    claim_overlap_and_memory();
    claim_activations();
}
