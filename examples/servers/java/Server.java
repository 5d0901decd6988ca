import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** An HTTP server with nothing but the JDK. */
public class Server {
    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(8119), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", Server::answer);
        server.start();
    }

    static void answer(HttpExchange exchange) throws IOException {
        if (exchange.getRequestURI().getPath().equals("/slow")) {
            sleep();
        }
        byte[] body = ("generation=" + System.getenv("SUPERVISORD_GENERATION") + "\n").getBytes();
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    static void sleep() {
        try {
            Thread.sleep(300);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
