/** Runs a script by sh and ends as it does. A SIGTERM waits for the script. */
public class Shell {
    private static Process script;

    public static void main(String[] args) throws Exception {
        // Before the script runs: it may report at once that it is ready for a SIGTERM.
        Runtime.getRuntime().addShutdownHook(new Thread(Shell::stop));
        start(args[0]);
        System.exit(await());
    }

    private static synchronized void start(String text) throws Exception {
        ProcessBuilder sh = new ProcessBuilder("sh", "-c", text).inheritIO();
        sh.environment().put("LEADER", Long.toString(ProcessHandle.current().pid()));
        script = sh.start();
    }

    private static synchronized Process started() {
        return script;
    }

    /** Stops the script. A SIGTERM to the process group does not reach one that starts after it. */
    private static void stop() {
        Process running = started();
        if (running != null) {
            running.destroy();
        }
        await();
    }

    private static int await() {
        while (started() != null) {
            try {
                return started().waitFor();
            } catch (InterruptedException e) {
                // it is waited for all the same
            }
        }
        return 1;
    }
}
