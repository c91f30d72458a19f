/* SPDX-License-Identifier: Apache-2.0 */
/* Prints tables V and VI of PipeMesh, with Figs. 11 and 12. */
#ifndef PIPEMESH_MORE_H
#define PIPEMESH_MORE_H

/* Values from table IV for Megatron's GPT-3 58B that both tables need. */
typedef struct pipemesh_row {
    const char *cluster;
    double batch, fwd, bwd, bubble, dp, pp; /* ms */
    double tflops;
} pipemesh_row;

/* Prints table V. */
void pipemesh_print_table5(const pipemesh_row *a100, const pipemesh_row *v100);
/* Prints table VI. `flops_per_ms`: a V100's forward throughput; `backward`:
 * ratio of backward to forward duration; `efficiency`: of a node's link. */
void pipemesh_print_table6(double flops_per_ms, double backward,
                           double efficiency);

#endif
