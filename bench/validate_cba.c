/* SPDX-License-Identifier: Apache-2.0 */
/* Reproduces figure 3 and the numbers of CBA (Fu et al., 2026).
 *
 *     validate-cba [--check PAGE [--quick] | --write PAGE] [FOLDER]
 *
 * PAGE is docs/papers/cba.md; FOLDER contains nsfnet.yaml (default
 * data/topologies). A full run takes ten seconds, --quick less than one. */
#include "cba.h"

#include <stdlib.h>
#include <string.h>

const int cba_counts[CBA_COUNTS] = {16, 32, 64, 128};

const cba_case cba_panels[CBA_PANELS] = {
    {"8b", "gpipe", 0, CBA_ERLANG, CBA_SLOTS},
    {"70b", "gpipe", 0, CBA_ERLANG, CBA_SLOTS},
    {"8b", "1f1b", 0, CBA_ERLANG, CBA_SLOTS},
    {"70b", "1f1b", 0, CBA_ERLANG, CBA_SLOTS},
};

const char *cba_title(const cba_case *c)
{
    if (strcmp(c->model, "8b") == 0)
        return strcmp(c->method, "gpipe") == 0 ? "8B, GPipe" : "8B, 1F1B";
    return strcmp(c->method, "gpipe") == 0 ? "70B, GPipe" : "70B, 1F1B";
}

lh_optical *cba_simulate(const cba_case *c, const char *folder,
                         const char *policies)
{
    char text[4096];
    lh_error err = {0};
    lh_scenario *scenario = NULL;
    lh_optical *result = NULL;
    int n = snprintf(text, sizeof text,
                     "longhaul: optical/1\n"
                     "topology: nsfnet.yaml\n"
                     "job: {preset: %s, stages: 8, datacenters: 6, "
                     "schedule: %s, microbatches: %d}\n"
                     "background: {erlang: %d}\n"
                     "request_slots: %d\n"
                     "policies:\n%s",
                     c->model, c->method, c->microbatches, c->erlang, c->slots,
                     policies);
    char name[1024];

    snprintf(name, sizeof name, "%s/validate-cba", folder);
    lh_status status =
        lh_scenario_parse(text, (size_t)n, name, &scenario, &err);
    if (status == LH_OK)
        status = lh_optical_run_all(scenario, NULL, &result, &err);
    lh_scenario_free(scenario);
    if (status != LH_OK) {
        fprintf(stderr, "validate-cba: %s\n", err.text);
        exit(1);
    }
    return result;
}

lh_optical *cba_compare(const cba_case *c, const char *folder)
{
    return cba_simulate(c, folder,
                        "  sd-ff: {}\n  ksp-ff: {}\n  cba: {}\n"
                        "  cba-ladder: {policy: cba, ladder: true}\n");
}

int main(int argc, char **argv)
{
    static const page_section parts[] = {
        {"claims", cba_claims}, {"figure", cba_figure},
        {"maxima", cba_maxima}, {"refusals", cba_refusals},
        {"grid", cba_grid},     {"defeats", cba_defeats},
        {"rules", cba_rules},
    };

    return page_program("validate-cba", parts, sizeof parts / sizeof *parts,
                        "data/topologies", argc, argv);
}
