/* SPDX-License-Identifier: Apache-2.0 */
/* Generates --help from the tables. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* Terminal column at which help texts of options begin. */
enum { HELP_COLUMN = 26 };

/* Counts the terminal columns in the first `len` bytes of `text`: every byte
 * but the continuation bytes in UTF-8 characters. */
static uint32_t count_columns(const char *text, size_t len)
{
    uint32_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += ((unsigned char)text[i] & 0xc0u) != 0x80u;
    return count;
}

/* Prints words from column `at` on, wrapped before `width`, with later lines
 * indented. "\n\n" begins a paragraph; "\n " preserves the line. */
static void print_wrapped(FILE *out, const char *text, uint32_t at,
                          uint32_t indent, uint32_t width)
{
    while (*text) {
        size_t spaces = strspn(text, " ");
        size_t len = strcspn(text + spaces, " \n") + spaces;
        uint32_t wide = count_columns(text, len);
        if (at + wide > width && at > indent) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            text += spaces;
            len -= spaces;
            wide = count_columns(text, len);
        }
        fwrite(text, 1, len, out);
        at += wide;
        text += len;
        if (text[0] == '\n' && text[1] == '\n') {
            fprintf(out, "\n\n%*s", (int)indent, "");
            at = indent;
            text += 2;
        } else if (text[0] == '\n') {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            text += 1;
        }
    }
    fputc('\n', out);
}

/* Copies a help text's first sentence into `out`, ended before a semicolon, or
 * before a colon that follows at least two spaces ("cpu: " begins a text). */
static void copy_sentence(char *out, size_t capacity, const char *text)
{
    size_t len = strcspn(text, "\n");
    int depth = 0; /* of parentheses */
    uint32_t n_spaces = 0;
    for (size_t i = 0; i + 1 < len; i++)
        if (text[i] == '(' || text[i] == ')')
            depth += text[i] == '(' ? 1 : -1;
        else if (depth > 0)
            continue;
        else if (text[i] == ' ')
            n_spaces++;
        else if ((text[i] == ';' || (text[i] == ':' && n_spaces >= 2)) &&
                 text[i + 1] == ' ')
            len = i;
        else if (text[i] == '.' && text[i + 1] == ' ' && i > 1 &&
                 (text[i - 1] != 'g' || text[i - 2] != '.')) /* not "e.g. " */
            len = i;
    if (len > 0 && text[len - 1] == '.')
        len--;
    snprintf(out, capacity, "%.*s", (int)len, text);
    /* The lists that texts refer to are in the whole help. */
    char *from = strstr(out, " (see "), *to = from ? strchr(from, ')') : NULL;
    if (to)
        memmove(from, to + 1, strlen(to + 1) + 1);
}

/* Prints an option with its help, wrapped before `width`; `all`: the whole
 * help, with choices and an example, otherwise its first sentence. */
static void print_option(FILE *out, const cli_option *o, const char *help,
                         bool all, uint32_t width)
{
    char left[80], right[900];
    int len = o->letter ? snprintf(left, sizeof left, "  -%c, --%s", o->letter,
                                   o->name)
                        : snprintf(left, sizeof left, "      --%s", o->name);
    if (o->arg)
        len += snprintf(left + len, sizeof left - (size_t)len, " %s", o->arg);
    size_t capacity = sizeof right;
    if (all)
        snprintf(right, capacity, "%s", help);
    else
        copy_sentence(right, capacity, help);
    size_t at = strlen(right);
    for (uint32_t i = 0; all && o->type == CLI_CHOICE && cli_choice_word(o, i);
         i++)
        at += (size_t)snprintf(right + at, capacity - at, "%s%s",
                               i ? ", " : " One of: ", cli_choice_word(o, i));
    if (o->example_argument && all)
        at += (size_t)snprintf(right + at, capacity - at, " (such as %s)",
                               o->example_argument);
    if (o->preset)
        snprintf(right + at, capacity - at, " (default: %s)", o->preset);
    fputs(left, out);
    if (len + 2 > HELP_COLUMN) {
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    } else {
        fprintf(out, "%*s", HELP_COLUMN - len, "");
    }
    print_wrapped(out, right, HELP_COLUMN, HELP_COLUMN, width);
}

/* Prints a list of words with their explanations, under its title, wrapped
 * before `width`; nothing for other kinds of words. */
static void print_words(FILE *out, cli_words words, uint32_t width)
{
    char text[CLI_ABOUT_TEXT];
    fprintf(out, "\n%s:\n", cli_words_title(words));
    for (uint32_t i = 0; cli_word(words, i); i++) {
        fprintf(out, "  %-*s", HELP_COLUMN - 2, cli_word(words, i));
        print_wrapped(out, cli_word_about(words, i, text), HELP_COLUMN,
                      HELP_COLUMN, width);
    }
}

/* Prints the command's options in groups, wrapped before `width`; with `all`,
 * or for a command without groups, every option in one list. */
static void print_options(FILE *out, const cli_command *k, bool all,
                          uint32_t width)
{
    const cli_help_group *group = cli_find_help_group(k->name, 0);
    if (all || !group) {
        if (k->n_options)
            fputs("\nOptions:\n", out);
        for (uint32_t i = 0; i < k->n_options; i++)
            print_option(out, &k->options[i], k->options[i].help, all, width);
        return;
    }
    for (uint32_t g = 0; (group = cli_find_help_group(k->name, g)); g++) {
        fprintf(out, "\n%s:\n", group->heading);
        for (const char *name = group->options; *name;) {
            size_t len = strcspn(name, " ");
            const cli_option *o = cli_find_long(k, name, len);
            if (o)
                print_option(out, o, o->help, false, width);
            name += len + strspn(name + len, " ");
        }
    }
}

/* Prints the options that every command has, wrapped before `width`; -o with
 * the command's own text. `all`: with their whole help. */
static void print_common_options(FILE *out, const cli_command *k, bool all,
                                 uint32_t width)
{
    fputs("\nCommon options:\n", out);
    for (uint32_t i = 0; i < cli_n_common_options; i++) {
        const cli_option *o = &cli_common_options[i];
        bool is_output = strcmp(o->name, "output") == 0 && k->output_help;
        print_option(out, o, is_output ? k->output_help : o->help, all, width);
    }
}

void cli_help(FILE *out, const cli_command *k, bool all, uint32_t width)
{
    enum { FEW_EXAMPLES = 2 };
    bool has_more = !all && cli_find_help_group(k->name, 0);
    if (width > 80)
        width = 80;
    fprintf(out, "Usage: longhaul %s [options]%s%s\n\n%s.\n", k->name,
            k->operands ? " " : "", k->operands ? k->operands : "", k->about);
    if (k->description && !has_more) {
        fputc('\n', out);
        print_wrapped(out, k->description, 0, 0, width);
    }
    print_options(out, k, all, width);
    print_common_options(out, k, all, width);
    for (cli_words w = 0; w < CLI_N_WORDS && !has_more; w++)
        if (cli_words_title(w) && cli_accepts_words(k, w))
            print_words(out, w, width);
    if (k->n_examples)
        fputs("\nExamples:\n", out);
    for (uint32_t i = 0; i < k->n_examples && (!has_more || i < FEW_EXAMPLES);
         i++) {
        fprintf(out, "  %s\n      ", k->examples[i].line);
        print_wrapped(out, k->examples[i].does, 6, 6, width);
    }
    if (has_more)
        fprintf(out,
                "\nAll %u options and the details:\n"
                "  longhaul %s --help-all\n  man longhaul-%s\n",
                k->n_options + cli_n_common_options, k->name, k->name);
}

void cli_help_all(FILE *out, uint32_t width)
{
    if (width > 80)
        width = 80;
    fputs("Usage: longhaul COMMAND [options] [arguments]\n\n", out);
    print_wrapped(
        out,
        "Plans LLM training across datacenters: the parallel layout of a job, "
        "the schedule of every GPU, and the iteration time.",
        0, 0, width);
    fputs("\nCommands:\n", out);
    for (uint32_t i = 0; cli_commands[i]; i++) {
        fprintf(out, "  %-12s", cli_commands[i]->name);
        print_wrapped(out, cli_commands[i]->about, 14, 14, width);
    }
    fputs("\n"
          "See 'longhaul COMMAND --help' for a command, and 'man longhaul' for "
          "the\n"
          "reference manual.\n"
          "\n"
          "Examples:\n"
          "  longhaul init --model llama3-70b --sites 2 -o job.yaml\n"
          "  longhaul plan job.yaml -o plan.json\n"
          "  longhaul simulate plan.json --html report.html\n"
          "  longhaul compare pipeline.yaml --sweep latency=0:2:0.25\n",
          out);
}
