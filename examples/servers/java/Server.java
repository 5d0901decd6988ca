import java.io.BufferedInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * An HTTP server on the socket that it finds as descriptor 0, which is what {@link System#inheritedChannel} is for.
 * When that channel is closed, the JDK puts /dev/null over descriptors 0, 1 and 2: what is logged then has to go to a file.
 *
 * On TERM it takes no more connections, answers what still comes on those that are open with "Connection: close", and ends when the
 * last client has gone, or has been silent for IDLE milliseconds.
 */
public class Server {
    static final int IDLE = 5000;
    static final byte[] BODY = ("generation=" + System.getenv().getOrDefault("SUPERVISORD_GENERATION", "0")
            + " pid=" + ProcessHandle.current().pid() + "\n").getBytes(StandardCharsets.US_ASCII);

    static volatile boolean stopping;

    public static void main(String[] args) throws Exception {
        ServerSocketChannel listener = listener();
        ExecutorService clients = Executors.newCachedThreadPool();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> drain(listener, clients)));
        ready();
        try {
            while (true) {
                Socket client = listener.accept().socket();
                clients.execute(() -> serve(client));
            }
        } catch (ClosedChannelException stopped) { // by drain
        }
    }

    static ServerSocketChannel listener() throws IOException {
        if (System.inheritedChannel() instanceof ServerSocketChannel inherited) {
            inherited.configureBlocking(true);
            return inherited;
        }
        return ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 8080)); // started by hand
    }

    /** A newline on the descriptor in NOTIFY_FD. */
    static void ready() throws IOException {
        String fd = System.getenv("NOTIFY_FD");
        if (fd != null) {
            try (FileOutputStream to = new FileOutputStream("/proc/self/fd/" + fd)) {
                to.write('\n');
            }
        }
    }

    static void drain(ServerSocketChannel listener, ExecutorService clients) {
        stopping = true;
        try {
            listener.close();
            Thread.sleep(100); // the connection that accept has just returned is on its way to its thread
            clients.shutdown();
            clients.awaitTermination(28, TimeUnit.SECONDS);
        } catch (IOException | InterruptedException e) {
            e.printStackTrace();
        }
    }

    static void serve(Socket client) {
        try (client) {
            client.setTcpNoDelay(true);
            InputStream in = new BufferedInputStream(client.getInputStream());
            for (String path; (path = readPath(client, in)) != null;) {
                if (path.equals("/slow")) {
                    Thread.sleep(300);
                }
                boolean last = stopping;
                String head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + BODY.length
                        + (last ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n");
                byte[] answer = new byte[head.length() + BODY.length];
                System.arraycopy(head.getBytes(StandardCharsets.US_ASCII), 0, answer, 0, head.length());
                System.arraycopy(BODY, 0, answer, head.length(), BODY.length);
                client.getOutputStream().write(answer);
                if (last) {
                    return;
                }
            }
        } catch (IOException | InterruptedException gone) {
            // the client went away
        }
    }

    /** Reads a request without a body and returns its path. Null: the client has gone, or is silent while we stop. */
    static String readPath(Socket client, InputStream in) throws IOException {
        StringBuilder head = new StringBuilder();
        long silent = 0;
        client.setSoTimeout(200);
        while (head.length() < 4 || head.indexOf("\r\n\r\n", head.length() - 4) < 0) {
            int c;
            try {
                c = in.read();
            } catch (SocketTimeoutException e) {
                silent = stopping ? silent + 200 : 0;
                if (silent >= IDLE) {
                    return null;
                }
                continue;
            }
            if (c < 0 || head.length() >= 8192) {
                return null;
            }
            head.append((char) c);
        }
        String[] words = head.toString().split(" ", 3);
        return words.length == 3 ? words[1] : null;
    }
}
