/* SPDX-License-Identifier: Apache-2.0 */
/* longhaul playground: the planner as a page for the browser. */
#include "commands.h"

#include <string.h>

/* Made by the build, of wasm/playground; empty where that lacked something. */
extern const char cli_playground_html[];

static const cli_example examples[] = {
    {"longhaul playground -o playground.html",
     "A page that plans jobs in any browser, without a network."},
};

static lh_status run_playground(cli *c)
{
    const char *page = cli_playground_html;
    if (!*page)
        return cli_error(
            c, LH_EUNSUPPORTED,
            "this longhaul was built without the playground: install clang, "
            "lld, wasi-libc and libclang-rt-14-dev-wasm32, run "
            "tools/get-wasm.sh, which gets libyaml's and jansson's sources, "
            "and build again ('meson setup --reconfigure' looks for them)");
    if (c->common.json)
        return cli_put_json(c, json_pack("{s:s}", "html", page));
    cli_put_file(c, page, strlen(page));
    return LH_OK;
}

const cli_command cmd_playground = {
    .name = "playground",
    .about = "Write the planner as a page for the browser",
    .description =
        "Prints one HTML file, or writes it to the FILE of -o, that works from "
        "the disk, without a network and without an installation: this "
        "program's planner, compiled to WebAssembly. A job is edited there as "
        "a form and as YAML side by side, and planned to the same plan and "
        "report, to the byte, as 'longhaul plan' writes.\n\n"
        "What is edited is in the page's address, which can be passed on. "
        "Other files that a job names, as a config.json or a profile, are "
        "dropped onto the page.",
    .output_help = "Write the page to FILE.",
    CLI_EXAMPLES(examples),
    .run = run_playground,
};
