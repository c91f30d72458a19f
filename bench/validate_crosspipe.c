/* SPDX-License-Identifier: Apache-2.0 */
/* Reproduces CrossPipe (Chen et al., arXiv:2507.00217): figures and tables from
 * the published settings, compared with the paper's claims.
 *
 *     validate-crosspipe [--check PAGE [--quick] | --write PAGE]
 *     validate-crosspipe --html REPORT
 *
 * PAGE is docs/papers/crosspipe.md. A full run takes a minute or two, --quick
 * seconds. --html writes figure 8's curves. */
#include "crosspipe.h"
#include "page_section.h"

#include <string.h>

void crosspipe_claims(FILE *to, const page_options *how)
{
    static const char no_solver[] =
        "no MILP or CPLEX here; crosspipe-optimal.md has longhaul's solver";
    static const char gpus[] = "a measurement on GPUs";
    static const score_missing missing[] = {
        {"figure 6", "critical path of 1F1B: crossings", "8",
         "the stages and microbatches of this figure are not published"},
        {"figure 14", "the CO solver scales better than the MILP solver",
         "\"scales better\"", no_solver},
        {"figure 14", "the MILP solver lacks memory for 32 and 64 stages",
         "\"runs out of memory\"", no_solver},
        {"section 7.1", "the performance model predicts the runtime accurately",
         "\"in most configurations\"",
         "the bars of figure 11 are not in the text; tables 5 and 6 are "
         "compared "
         "below"},
        {"figure 17", "injected delays match their targets", "\"closely\"",
         gpus}};
    score s = {.numbers = {0}};

    (void)how; /* --quick has no effect: this part is fast */
    score_print_head(to);
    crosspipe_claim_datacenters(&s, to);
    crosspipe_claim_savings(&s, to);
    crosspipe_claim_cases(&s, to);
    crosspipe_claim_messages(&s, to);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        score_print_missing(&s, &missing[i], to);
    score_print(&s, "rows", to);
}

int main(int argc, char **argv)
{
    static const page_section parts[] = {
        {"claims", crosspipe_claims},
        {"directions", crosspipe_directions},
        {"tables", crosspipe_tables},
        {"sends", crosspipe_sends},
        {"memory", crosspipe_memory},
        {"slowdowns", crosspipe_slowdowns},
        {"datacenters", crosspipe_datacenters},
        {"delays", crosspipe_delays},
        {"degrees", crosspipe_degrees},
        {"strides", crosspipe_strides},
    };

    if (argc == 3 && strcmp(argv[1], "--html") == 0)
        return !crosspipe_write_html(argv[2]);
    return page_program("validate-crosspipe", parts,
                        sizeof parts / sizeof *parts, NULL, argc, argv);
}
