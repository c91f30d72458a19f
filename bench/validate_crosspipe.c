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
    score s = {.numbers = {0}};

    (void)how; /* --quick has no effect: this part is fast */
    score_print_head(to);
    crosspipe_claim_datacenters(&s, to);
    crosspipe_claim_savings(&s, to);
    crosspipe_claim_cases(&s, to);
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
