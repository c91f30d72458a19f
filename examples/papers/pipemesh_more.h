/* SPDX-License-Identifier: Apache-2.0 */
/* Tables V and VI of PipeMesh, with Figs. 11 and 12. */
#ifndef PIPEMESH_MORE_H
#define PIPEMESH_MORE_H

/* Of table IV, what both need of Megatron's GPT-3 58B. */
typedef struct pipemesh_row {
    const char *cluster;
    double batch, fwd, bwd, bubble, dp, pp; /* ms */
    double tflops;
} pipemesh_row;

void pipemesh_print_table5(const pipemesh_row *a100, const pipemesh_row *v100);
/* `flops_per_ms`, `backward`: what a V100 reaches in a forward, and how much
 * longer a backward takes; `efficiency` of a node's link. */
void pipemesh_print_table6(double flops_per_ms, double backward,
                           double efficiency);

#endif
