/* PID 1 of a test machine: it reaps what it inherits and does nothing else. SIGTERM ends the machine. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    sigset_t set;
    int sig;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (sigwait(&set, &sig) == 0 && sig == SIGTERM)
            _exit(0);
    }
}
