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

int main(int argc, char **argv)
{
    static const page_section parts[] = {
        {"tables", crosspipe_tables},
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
