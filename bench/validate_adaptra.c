/* SPDX-License-Identifier: Apache-2.0 */
/* Reproduces Adaptra (Wu et al., arXiv:2504.19232): slow-link figures from the
 * published settings, compared with the paper's claims.
 *
 *     validate-adaptra [--check PAGE [--quick] | --write PAGE] [FOLDER]
 *
 * PAGE is docs/papers/adaptra.md; FOLDER contains adaptra-8-stages.yaml and
 * adaptra-trace.yaml (default examples). A full run takes seconds, --quick one
 * second. */
#include "adaptra.h"

int main(int argc, char **argv)
{
    static const page_section parts[] = {
        {"jobs", adaptra_job_claims},  {"times", adaptra_jobs},
        {"claims", adaptra_claims},    {"causes", adaptra_causes},
        {"orders", adaptra_orders},    {"slackness", adaptra_slackness},
        {"example", adaptra_example},  {"growth", adaptra_growth},
        {"single", adaptra_single},    {"several", adaptra_several},
        {"places", adaptra_placement}, {"optima", adaptra_optima},
        {"trace", adaptra_trace},      {"adapting", adaptra_adapting},
    };

    return page_program("validate-adaptra", parts, sizeof parts / sizeof *parts,
                        "examples", argc, argv);
}
