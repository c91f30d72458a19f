/* SPDX-License-Identifier: Apache-2.0 */
/* Generates man pages (mdoc) from the tables. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

/* Prints one word with roff's special characters escaped. line_start: the word
 * begins a line, where '.' and "'" are special too. */
static void put_roff_word(FILE *out, const char *word, size_t len,
                          bool line_start)
{
    if (line_start && (*word == '.' || *word == '\''))
        fputs("\\&", out);
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '\\')
            fputs("\\e", out);
        else if (word[i] == '-')
            fputs("\\-", out);
        else
            fputc(word[i], out);
    }
}

/* Prints text in short lines; each sentence begins a new line. */
static void put_roff(FILE *out, const char *text)
{
    size_t column = 0;
    while (*text) {
        size_t len = strcspn(text, " \n");
        if (column > 0 && column + 1 + len > 74) {
            fputc('\n', out);
            column = 0;
        }
        if (column > 0)
            fputc(' ', out);
        put_roff_word(out, text, len, column == 0);
        column += len + 1;
        const char *after = text + len;
        bool paragraph = after[0] == '\n' && after[1] == '\n';
        text = after + strspn(after, " \n");
        /* "e.g. this" ends no sentence. */
        bool ends = len > 0 && strchr(".?!", after[-1]) &&
                    isupper((unsigned char)*text);
        if (*text && (paragraph || ends)) {
            fputs(paragraph ? "\n.Pp\n" : "\n", out);
            column = 0;
        }
    }
    fputc('\n', out);
}

/* Writes a manual page's head: date, `title`, `name` and the one-line
 * description `about`. */
static void print_man_head(FILE *out, const char *title, const char *name,
                           const char *about)
{
    fprintf(out, ".\\\" Made from the program's own tables.\n"
                 ".Dd November 21, 2026\n.Dt ");
    for (const char *p = title; *p; p++)
        fputc(toupper((unsigned char)*p), out);
    fprintf(out, " 1\n.Os\n.Sh NAME\n.Nm %s\n.Nd ", name);
    /* By convention a description begins in lower case. */
    fputc(tolower((unsigned char)about[0]), out);
    fprintf(out, "%s\n", about + 1);
}

/* Writes an option with its help and its choices. */
static void put_man_option(FILE *out, const cli_option *o, const char *help)
{
    fputs(".It", out);
    if (o->letter)
        fprintf(out, " Fl %c%s%s ,", o->letter, o->arg ? " Ar " : "",
                o->arg ? o->arg : "");
    fprintf(out, " Fl \\-%s", o->name);
    if (o->arg)
        fprintf(out, " Ns = Ns Ar %s", o->arg);
    fputc('\n', out);
    put_roff(out, help);
    for (uint32_t i = 0; o->type == CLI_CHOICE && cli_choice_word(o, i); i++)
        fprintf(out, "%s%s", i ? ",\n" : "One of: ", cli_choice_word(o, i));
    if (o->type == CLI_CHOICE)
        fputs(".\n", out);
    if (o->example_argument) {
        fputs("Such as\n", out);
        put_roff(out, o->example_argument);
    }
    if (o->preset)
        fprintf(out, "The default is %s.\n", o->preset);
}

/* Writes the section EXAMPLES; nothing without examples. */
static void put_man_examples(FILE *out, const cli_command *k)
{
    if (k->n_examples == 0)
        return;
    fputs(".Sh EXAMPLES\n", out);
    for (uint32_t i = 0; i < k->n_examples; i++) {
        if (i > 0)
            fputs(".Pp\n", out);
        put_roff(out, k->examples[i].does);
        fputs(".Bd -literal -offset indent\n", out);
        put_roff(out, k->examples[i].line);
        fputs(".Ed\n", out);
    }
}

/* Writes the manual section EXIT STATUS, which is the same for all commands. */
static void put_man_status(FILE *out)
{
    fputs(".Sh EXIT STATUS\n"
          ".Bl -tag -width Ds\n"
          ".It 0\n"
          "Success.\n"
          ".It 1\n"
          "Failure; standard error has the reason.\n"
          ".It 2\n"
          "Usage error.\n"
          ".El\n",
          out);
}

/* Prints the command list in alphabetical order, by convention. */
static void put_man_commands(FILE *out)
{
    const char *last = "";
    for (;;) {
        const char *next = NULL;
        for (uint32_t j = 0; cli_commands[j]; j++) {
            const char *name = cli_commands[j]->name;
            if (strcmp(name, last) > 0 && (!next || strcmp(name, next) < 0))
                next = name;
        }
        if (!next)
            break;
        fprintf(out, "%s.Xr longhaul-%s 1", *last ? " ,\n" : "", next);
        last = next;
    }
    fputc('\n', out);
}

/* Writes a manual section with a list of words (methods, engines and others)
 * and their explanations. */
static void put_man_words(FILE *out, cli_words words)
{
    char text[CLI_ABOUT_TEXT];
    fputs(".Sh ", out);
    for (const char *p = cli_words_title(words); *p; p++)
        fputc(toupper((unsigned char)*p), out);
    fputs("\n.Bl -tag -width Ds\n", out);
    for (uint32_t i = 0; cli_word(words, i); i++) {
        fprintf(out, ".It Cm %s\n", cli_word(words, i));
        put_roff(out, cli_word_about(words, i, text));
    }
    fputs(".El\n", out);
}

/* Converts a command's operands, "PIPELINE|PLAN [SCHEDULE]", to mdoc macros:
 * ".Ar PIPELINE | PLAN" and ".Op Ar SCHEDULE". */
static void put_man_operands(FILE *out, const char *operands)
{
    if (!operands)
        return;
    fputs(*operands == '[' ? ".Op Ar " : ".Ar ", out);
    for (const char *p = operands; *p; p++) {
        if (p[0] == ' ' && p[1] == '[')
            fputs("\n.Op Ar ", out);
        else if (*p == '|')
            fputs(" | ", out);
        else if (*p != '[' && *p != ']')
            fputc(*p, out);
    }
    fputc('\n', out);
}

/* Writes the complete manual page of command `k`. */
static void put_man_command(FILE *out, const cli_command *k)
{
    char title[64];
    snprintf(title, sizeof title, "longhaul-%s", k->name);
    print_man_head(out, title, title, k->about);
    fprintf(out, ".Sh SYNOPSIS\n.Nm longhaul %s\n.Op Ar options\n", k->name);
    put_man_operands(out, k->operands);
    fputs(".Sh DESCRIPTION\n", out);
    put_roff(out, k->description);
    fputs(".Pp\nThe options are:\n.Bl -tag -width Ds\n", out);
    for (uint32_t i = 0; i < k->n_options; i++)
        put_man_option(out, &k->options[i], k->options[i].help);
    for (uint32_t i = 0; i < cli_n_common_options; i++) {
        const cli_option *o = &cli_common_options[i];
        bool is_output = strcmp(o->name, "output") == 0 && k->output_help;
        put_man_option(out, o, is_output ? k->output_help : o->help);
    }
    fputs(".El\n", out);
    for (cli_words w = 0; w < CLI_N_WORDS; w++)
        if (cli_words_title(w) && cli_accepts_words(k, w))
            put_man_words(out, w);
    put_man_status(out);
    put_man_examples(out, k);
    fputs(".Sh SEE ALSO\n.Xr longhaul 1\n", out);
}

/* Writes the complete manual page of the program, with its list of commands. */
static void put_man_main(FILE *out)
{
    print_man_head(out, "longhaul", "longhaul",
                   "Plan LLM training across datacenters");
    fputs(".Sh SYNOPSIS\n.Nm\n.Ar command\n.Op Ar options\n"
          ".Op Ar arguments\n.Sh DESCRIPTION\n.Nm\n",
          out);
    put_roff(out,
             "plans and runs LLM training on GPUs of several datacenters: it "
             "finds the parallel layout, the schedule of every GPU, and the "
             "iteration time.\n"
             "\n"
             "Input files are YAML or JSON and begin with a line such as "
             "'longhaul: job/1'. Every output file can be read back.\n"
             "\n"
             "The commands are:");
    fputs(".Bl -tag -width Ds\n", out);
    for (uint32_t i = 0; cli_commands[i]; i++) {
        fprintf(out, ".It Xr longhaul-%s 1\n", cli_commands[i]->name);
        put_roff(out, cli_commands[i]->about);
    }
    fputs(".El\n"
          ".Sh ENVIRONMENT\n"
          ".Bl -tag -width Ds\n"
          ".It Ev NO_COLOR\n"
          "Disables colours if set and not empty.\n"
          ".It Ev COLUMNS\n"
          "Width of the output if it is not a terminal.\n"
          ".El\n",
          out);
    put_man_status(out);
    fputs(".Sh SEE ALSO\n", out);
    put_man_commands(out);
}

void cli_man(FILE *out, const cli_command *command)
{
    if (command)
        put_man_command(out, command);
    else
        put_man_main(out);
}
