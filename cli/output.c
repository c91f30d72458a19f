/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a command's output. */
#include "cli.h"

#include <longhaul/experimental/status.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

lh_status cli_write(cli *c, const char *path, const char *text, size_t len)
{
    cli_defer_signals();
    lh_status status = lh_file_write(path, text, len, &c->err);
    cli_release_signals();
    return status;
}

lh_status cli_write_text(cli *c, const char *path, char *text, size_t len)
{
    lh_status status = cli_write(c, path, text, len);
    lh_text_free(text);
    return status;
}

lh_status cli_put_json(cli *c, json_t *object)
{
    if (!object)
        return cli_no_memory(c);
    /* 15 digits: exact to the nanosecond below 11 days, and 0.1 remains 0.1. */
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(object);
    if (!text)
        return cli_no_memory(c);
    size_t len = strlen(text);
    size_t room = lh_json_escape(text, len, NULL, 0) + 1;
    char *shown = room > len + 1 ? malloc(room) : text;
    if (shown && shown != text)
        lh_json_escape(text, len, shown, room);
    if (shown)
        fprintf(c->out, "%s\n", shown);
    if (shown != text)
        free(shown);
    free(text);
    return shown ? LH_OK : cli_no_memory(c);
}

int cli_write_stdout(cli *c, const char *text, size_t len)
{
    if (c->common.output && !(c->command && c->command->handles_output)) {
        if (cli_write(c, c->common.output, text, len) == LH_OK)
            return EXIT_OK;
        cli_print_stderr("%s", c->err.text);
        return EXIT_FAILED;
    }
    if (fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0)
        return EXIT_OK;
    cli_print_stderr("cannot write to standard output: %s", strerror(errno));
    return EXIT_FAILED;
}
