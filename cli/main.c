/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command, parses its arguments, runs it and reports errors. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Finds a command by name; NULL: none. */
static const cli_command *find_command(const char *name)
{
    for (uint32_t i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

/* Prints the error in `c`, unless it has been printed already; returns the
 * program's exit status for it. */
static int report_error(const cli *c)
{
    cli_progress_end();
    if (c->error_printed)
        return EXIT_FAILED;
    if (!c->usage) {
        cli_print_stderr("%s", c->err.text);
        return EXIT_FAILED;
    }
    if (c->command)
        cli_print_stderr("%s: %s\nTry 'longhaul %s --help'.", c->command->name,
                         c->err.text, c->command->name);
    else
        cli_print_stderr("%s\nTry 'longhaul --help'.", c->err.text);
    return EXIT_USAGE;
}

/* Parses the arguments and runs the command, or prints its help or version. */
static lh_status run_command(cli *c, int argc, char **argv)
{
    CLI_TRY(cli_parse(c, argc, argv, 2));
    if (c->common.help || c->common.help_all) {
        cli_help(c->out, c->command, c->common.help_all, cli_width());
        return LH_OK;
    }
    if (c->common.version) {
        cli_print(c, "longhaul %s\n", lh_version());
        return LH_OK;
    }
    CLI_TRY(cli_check_same_files(c));
    if (!c->command->may_span_hosts)
        CLI_TRY(cli_check_outputs(c));
    return c->command->run(c);
}

/* Prints the help: `longhaul help [COMMAND]` equals `longhaul COMMAND --help`.
 */
static lh_status show_help(cli *c, const char *name)
{
    const cli_command *command = name ? find_command(name) : NULL;
    if (name && !command)
        return cli_usage(c, "unknown command '%.60s'", name);
    if (command)
        cli_help(c->out, command, false, cli_width());
    else
        cli_help_all(c->out, cli_width());
    return LH_OK;
}

/* Fails due to an unknown command; the message has a similar name if there is
 * one. */
static lh_status fail_unknown_command(cli *c, const char *name)
{
    const char *names[32];
    uint32_t count = 0;
    for (; cli_commands[count] && count < 31; count++)
        names[count] = cli_commands[count]->name;
    names[count] = NULL;
    const char *near = cli_find_similar_word(name, names);
    if (near)
        return cli_usage(c, "unknown command '%.60s'; did you mean '%s'?", name,
                         near);
    return cli_usage(c, "unknown command '%.60s'", name);
}

/* Writes generated files for the build: `__generate man [COMMAND]` manual
 * pages, `__generate bash`, zsh or fish completions. */
static lh_status generate(cli *c, int argc, char **argv)
{
    const char *what = argc > 0 ? argv[0] : "";
    if (strcmp(what, "man") != 0)
        return cli_complete(c->out, what)
                   ? LH_OK
                   : cli_usage(c, "__generate: man, bash, zsh or fish");
    const cli_command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (argc > 1 && !command)
        return cli_usage(c, "unknown command '%.60s'", argv[1]);
    cli_man(c->out, command);
    return LH_OK;
}

/* Runs the command that the first argument names, or prints the program's help
 * or version. */
static lh_status dispatch(cli *c, int argc, char **argv)
{
    if (argc < 2)
        return cli_usage(c, "a command is required: plan, schedule, simulate, "
                            "...");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return show_help(c, NULL);
    if (strcmp(name, "help") == 0)
        return show_help(c, argc > 2 ? argv[2] : NULL);
    if (strcmp(name, "--version") == 0) {
        cli_print(c, "longhaul %s\n", lh_version());
        return LH_OK;
    }
    if (strcmp(name, "__generate") == 0)
        return generate(c, argc - 2, argv + 2);
    if (name[0] == '-')
        return cli_usage(
            c, "'%.60s' is before the command; put options after it", name);
    c->command = find_command(name);
    if (!c->command)
        return fail_unknown_command(c, name);
    c->settings = calloc(1, c->command->settings_size + 1);
    if (!c->settings)
        return cli_no_memory(c);
    return run_command(c, argc, argv);
}

/* Opens closed standard descriptors, so that no opened file becomes standard
 * output. Writes to the replacement fail, as they should. Returns false if a
 * descriptor cannot be opened. */
static bool fill_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* Runs longhaul's command line; returns the exit status. */
int main(int argc, char **argv)
{
    if (!fill_standard_files())
        return EXIT_FAILED;
    setlocale(LC_CTYPE, "");
    cli_catch_signals();
    cli c = {0};
    char *text = NULL;
    size_t len = 0;
    c.out = open_memstream(&text, &len);
    c.operands = calloc((size_t)argc + 1, sizeof *c.operands);
    lh_status status =
        c.out && c.operands ? dispatch(&c, argc, argv) : cli_no_memory(&c);
    if (c.out && fclose(c.out) != 0 && status == LH_OK)
        status = cli_no_memory(&c);
    cli_progress_end();
    int code = status == LH_OK ? c.exit_code : report_error(&c);
    if (status == LH_OK && len > 0) {
        int written = cli_write_stdout(&c, text, len);
        if (written != EXIT_OK)
            code = written;
    }
    if (status != LH_OK && c.settings && c.command->failed)
        c.command->failed(&c);
    free(text);
    cli_release_names(&c);
    free(c.operands);
    free(c.settings);
    return code;
}
